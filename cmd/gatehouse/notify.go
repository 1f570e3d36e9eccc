package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
)

// How often the node looks for a first refusal, and how long it waits after a
// receiver did not take one.
const (
	notifyEvery = 2 * time.Second
	notifyAgain = time.Minute
)

// notifier tells people of the first refusal after a promotion: the moment at which
// a bundle that looked quiet meets what nobody had seen.
type notifier struct {
	node   string
	review *review.Review
	to     []receiver
	note   func(ctx context.Context, step, bundle, subject string, by gatekeeper.By) error
	log    *slog.Logger
	told   map[string]bool // promotions that this run has told of
}

// receiver takes a message; an error means that it did not.
type receiver interface {
	tell(ctx context.Context, m message) error
}

// hook is a webhook.
type hook struct {
	url  string
	host string // for the log: a URL may be a secret
	exit http.RoundTripper
}

// newNotifier makes a checked exit for each receiver.
func (n *node) newNotifier(cfg *config.Config, up *upstream.Client, rev *review.Review, dev bool) (*notifier, error) {
	x := &notifier{node: cfg.Node, review: rev, note: n.gk.Note, log: n.log, told: map[string]bool{}}
	for i, c := range cfg.Notify {
		at := fmt.Sprintf("notify[%d]", i)
		var to receiver
		var err error
		switch {
		case (c.Webhook == "") == (c.SMTP == ""):
			err = problem.New(problem.ConfigInvalid, at+": webhook or smtp, one of the two", "")
		case c.SMTP != "":
			to, err = n.newMailbox(at, c, up, dev)
		default:
			to, err = n.newHook(at, c, up, dev)
		}
		if err != nil {
			return nil, err
		}
		x.to = append(x.to, to)
	}
	return x, nil
}

func (n *node) newHook(at string, c config.Notify, up *upstream.Client, dev bool) (receiver, error) {
	u, err := url.Parse(c.Webhook)
	if err != nil || u.User != nil || u.Scheme != authority.HTTPS && !(dev && u.Scheme == authority.HTTP) {
		return nil, problem.New(problem.ConfigInvalid, at+": webhook must be an https URL", "")
	}
	to, err := authority.ParseHostHeader(u.Scheme, u.Host)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, at+": webhook names no host", "")
	}
	exit, err := up.Node(upstream.NodeOptions{Purpose: "notify", To: to, Begin: n.begin("notify", "notify", to, dev)})
	if err != nil {
		return nil, err
	}
	return hook{c.Webhook, to.Host(), exit}, nil
}

// run looks until ctx ends.
func (x *notifier) run(ctx context.Context) error {
	if len(x.to) == 0 {
		return nil
	}
	wait := time.NewTimer(notifyEvery)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		next := notifyEvery
		if err := x.look(ctx); err != nil && ctx.Err() == nil {
			x.log.WarnContext(ctx, "first refusal not told", slog.Any("err", err))
			next = notifyAgain
		}
		wait.Reset(next)
	}
}

// look tells every receiver of what is new. What one of them did not take is told
// to all of them again: twice is better than never.
func (x *notifier) look(ctx context.Context) error {
	all, err := x.review.FirstRefusals(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if x.told[r.Promotion] {
			continue
		}
		m := messageOf(x.node, r)
		for _, to := range x.to {
			if err := to.tell(ctx, m); err != nil {
				return err
			}
		}
		x.told[r.Promotion] = true
		if err := x.note(ctx, review.StepNotify, r.Bundle, r.Promotion, gatekeeper.By{Name: gatekeeper.ByConfig, Via: "config"}); err != nil {
			return err
		}
	}
	return nil
}

// message is what a receiver gets. Text is for chat systems that show it.
type message struct {
	Type string `json:"type"`
	Node string `json:"node"`
	Text string `json:"text"`
	review.Refusal
}

func messageOf(node string, r review.Refusal) message {
	return message{
		Type: "gatehouse.first_refusal.v1", Node: node, Refusal: r,
		Text: fmt.Sprintf("Gatehouse: first refusal of %s since it was promoted: %s %s %s (%s, %s), session %s", r.Bundle, r.Kind, r.Method, r.Host+r.Name, r.Rule, r.Reason, r.Session),
	}
}

func (h hook) tell(ctx context.Context, m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("receiver %s: bad URL", h.host)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.exit.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("receiver %s: %w", h.host, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("receiver %s answered %s", h.host, resp.Status)
	}
	return nil
}
