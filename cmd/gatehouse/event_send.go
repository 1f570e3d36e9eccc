package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/ingest/cron"
	"gatehouse/ingest/linear"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// delivery is one signed request to a hooks listener.
type delivery struct {
	URL      string // http://host:port/hooks/name
	Source   string
	Kind     string
	ID       string // "" = a fresh one
	Secret   secret.Value
	Body     []byte
	Endpoint config.Endpoint // how a sender of source webhook proves itself
}

// answer is what the hooks listener said.
type answer struct {
	Status int    `json:"http_status"`
	Result string `json:"status"`
	ID     string `json:"id"`
	Code   string `json:"code"`
}

// send signs and posts d as its vendor would.
func (d delivery) send(ctx context.Context) (answer, error) {
	id := d.ID
	if id == "" {
		id = newUUID()
	}
	h, err := d.sign(id, time.Now())
	if err != nil {
		return answer{}, err
	}
	return d.post(ctx, h)
}

// post sends d under the headers given.
func (d delivery) post(ctx context.Context, h http.Header) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return answer{}, err
	}
	req.Header = h
	tr := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		return answer{}, problem.Wrap(err, problem.Unreachable, "couldn't reach "+d.URL, "start it with `gatehouse serve`")
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return answer{}, problem.Wrap(err, problem.Unreachable, "the answer broke off", "")
	}
	a := answer{Status: res.StatusCode}
	_ = json.Unmarshal(body, &a) // a proxy in between may answer in HTML: the status is what counts
	a.Status = res.StatusCode
	return a, nil
}

// webhookEndpoint finds a configured endpoint that has a URL.
func webhookEndpoint(cfg *config.Config, name string) (config.Endpoint, error) {
	names := []string{}
	for _, e := range cfg.Endpoints {
		if e.Source == cron.Name {
			continue
		}
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return config.Endpoint{}, usage(fmt.Sprintf("no webhook endpoint is named %q", name), "configured: "+strings.Join(names, ", "))
}

// localURL is where this node takes an endpoint's deliveries.
func localURL(cfg *config.Config, endpoint string) string {
	scheme := "http"
	if cfg.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + cfg.Listen.Hooks + "/hooks/" + endpoint
}

func (c *cli) eventSend() *cobra.Command {
	var endpoint, kind, id string
	cmd := &cobra.Command{
		Use: "send FILE", Short: "Sign a body with an endpoint's secret and post it to this node's hooks listener",
		Long: "Sign a body as the endpoint's vendor does, with the endpoint's first secret, and post it to this node's hooks listener.\n" +
			"A Linear body's webhookTimestamp becomes the present: an old one would be refused. Exit 3 when the answer is not 200.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(c.file(cmd))
			if err != nil {
				return err
			}
			body, err := os.ReadFile(args[0])
			if err != nil {
				return problem.Wrap(err, problem.Usage, "couldn't read "+args[0], "")
			}
			e, err := webhookEndpoint(cfg, endpoint)
			if err != nil {
				return err
			}
			d := delivery{Kind: kind, ID: id, Body: body, URL: localURL(cfg, endpoint), Source: e.Source, Secret: e.Secrets[0].Value(), Endpoint: e}
			if d.Kind == "" {
				d.Kind, _, _ = strings.Cut(filepath.Base(args[0]), "__")
			}
			if d.Source == linear.Name {
				d.Body = stampLinear(body, time.Now())
			}
			a, err := d.send(cmd.Context())
			if err != nil {
				return err
			}
			if c.output == "table" {
				fmt.Fprintf(c.out, "%d %s %s\n", a.Status, plain(a.Result+a.Code), plain(a.ID))
			} else if err := c.json(a); err != nil {
				return err
			}
			if a.Status != http.StatusOK {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "endpoint", "main", "endpoint to send to")
	f.StringVar(&kind, "kind", "", "event kind; default: the file's name up to \"__\"")
	f.StringVar(&id, "id", "", "delivery id; default: a fresh one")
	return cmd
}

// newUUID returns a random version 4 UUID, the form vendors use for delivery ids.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
