package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// How often the newest checkpoint goes to each place. A push is a call of the
// node and has receipts of its own: every one makes the log grow.
const (
	pushEvery = time.Minute
	pushLook  = time.Second // how soon after a start the first one goes
	pushLimit = 30 * time.Second
)

// push sends the newest checkpoint to one place that the node's disk does not
// reach, so that a rolled back node can be told from its past. The note is the
// whole body: whoever receives it needs no Gatehouse to keep it.
type push struct {
	url  string
	host string // for the log: a URL may be a secret
	exit http.RoundTripper
	head func() []byte
	log  *slog.Logger
}

// newPushes makes a checked exit for each https place of checkpoints:.
func (n *node) newPushes(cfg *config.Config, up *upstream.Client, dev bool) ([]*push, error) {
	urls, err := cfg.CheckpointURLs()
	if err != nil {
		return nil, err
	}
	var out []*push
	for _, u := range urls {
		to, err := authority.ParseHostHeader(u.Scheme, u.Host)
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "checkpoints: a URL names no host", "")
		}
		exit, err := up.Node(upstream.NodeOptions{Purpose: "checkpoint", To: to, Begin: n.begin("checkpoint", "", to, dev), Timeout: pushLimit})
		if err != nil {
			return nil, err
		}
		out = append(out, &push{u.String(), to.Host(), exit, n.notary.Head, n.log})
	}
	return out, nil
}

// run pushes until ctx ends. A place that does not take a checkpoint gets a newer
// one a minute later.
func (p *push) run(ctx context.Context) error {
	wait := time.NewTimer(pushLook)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		note := p.head()
		if note == nil { // nothing happened yet
			wait.Reset(pushLook)
			continue
		}
		if err := p.send(ctx, note); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "checkpoint not pushed", slog.String("host", p.host), slog.Any("err", err))
		}
		wait.Reset(pushEvery)
	}
}

func (p *push) send(ctx context.Context, note []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(note))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	resp, err := p.exit.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}
