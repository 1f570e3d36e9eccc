package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/ingest/cron"
	"gatehouse/ingest/linear"
	"gatehouse/ingest/sentry"
	"gatehouse/ingest/webhook"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

func (c *cli) endpointCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "endpoint", Short: "List and test webhook endpoints, rotate their secrets", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.endpointList(), c.endpointTest(), c.endpointRotate())
	return cmd
}

// endpointRow is one line of endpoint list. Secrets are references.
type endpointRow struct {
	Name       string   `json:"name"`
	Source     string   `json:"source"`
	URL        string   `json:"url,omitempty"`
	Schedule   string   `json:"schedule,omitempty"`
	Secrets    []string `json:"secrets"`
	Connection string   `json:"connection,omitempty"`
}

func (c *cli) endpointList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the configured endpoints", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			var list []endpointRow
			for _, e := range cfg.Endpoints {
				row := endpointRow{Name: e.Name, Source: e.Source, Secrets: []string{}, Connection: e.Connection}
				for _, s := range e.Secrets {
					row.Secrets = append(row.Secrets, s.Ref())
				}
				if e.Source == cron.Name {
					row.Schedule = strings.TrimSpace(e.Schedule + " " + e.Zone)
				} else {
					row.URL = publicURL(cfg, e.Name)
				}
				list = append(list, row)
			}
			return rows(c, list, []string{"endpoint", "source", "url or schedule", "secrets", "connection"}, func(r endpointRow) []string {
				return []string{r.Name, r.Source, r.URL + r.Schedule, strings.Join(r.Secrets, ", "), r.Connection}
			})
		},
	}
}

// publicURL is what a vendor is given.
func publicURL(cfg *config.Config, endpoint string) string {
	url := strings.TrimSuffix(cfg.PublicURL, "/")
	if url == "" {
		url = "https://<public_url>"
	}
	return url + "/hooks/" + endpoint
}

// tested is one delivery of a test round and what the endpoint should say.
type tested struct {
	Step   string `json:"step"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Passed bool   `json:"passed"`
}

func (c *cli) endpointTest() *cobra.Command {
	var public bool
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Send a round of signed and wrongly signed samples to an endpoint",
		Long: "Send a sample that is signed as the vendor signs, the same again, one with a changed body and one under a wrong secret,\n" +
			"and say whether each was answered as it should be. No session starts from a sample: it is a ping, or of a kind that\n" +
			"nobody knows. It goes to this node's listener, or with --public to public_url, by the way that vendors take. Exit 3\n" +
			"when an answer is another.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(c.file(cmd))
			if err != nil {
				return err
			}
			e, err := webhookEndpoint(cfg, args[0])
			if err != nil {
				return err
			}
			url := localURL(cfg, e.Name)
			if public {
				if cfg.PublicURL == "" {
					return problem.New(problem.ConfigInvalid, "public_url is not set", "write the URL under which vendors reach the hooks listener")
				}
				url = publicURL(cfg, e.Name)
			}
			round, err := testRound(cmd.Context(), e, url)
			if err != nil {
				return err
			}
			err = rows(c, round, []string{"step", "want", "got", ""}, func(p tested) []string {
				verdict := "ok"
				if !p.Passed {
					verdict = "FAILED"
				}
				return []string{p.Step, p.Want, p.Got, verdict}
			})
			if err != nil {
				return err
			}
			for _, p := range round {
				if !p.Passed {
					return &exitError{code: exitNegative}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&public, "public", false, "send to public_url instead of this node's own listener")
	return cmd
}

// testRound sends the samples. A delivery that the scheme cannot tell from
// another is left out: a token says nothing of the body, and an endpoint without
// delivery ids knows no repetition.
func testRound(ctx context.Context, e config.Endpoint, url string) ([]tested, error) {
	now := time.Now()
	id := newUUID()
	d := delivery{URL: url, Source: e.Source, Secret: e.Secrets[0].Value(), Endpoint: e}
	d.Kind, d.Body = sample(e, strings.ReplaceAll(id, "-", ""), now)
	h, err := d.sign(id, now)
	if err != nil {
		return nil, err
	}
	const stored, known, refused = "200 accepted", "200 duplicate", "401 unauthorized"
	var round []tested
	send := func(step, want string, d delivery, h http.Header) error {
		a, err := d.post(ctx, h)
		if err != nil {
			return err
		}
		got := fmt.Sprintf("%d %s", a.Status, a.Result)
		if a.Code != "" {
			got = fmt.Sprintf("%d %s", a.Status, a.Code)
		}
		round = append(round, tested{Step: step, Want: want, Got: got, Passed: got == want})
		return nil
	}
	if err := send("signed", stored, d, h); err != nil {
		return nil, err
	}
	if e.Source != webhook.Name || e.ID != nil || e.HMAC != nil && strings.Contains(e.HMAC.Signed, "{id}") {
		if err := send("the same again", known, d, h); err != nil {
			return nil, err
		}
	}
	if e.Token == nil {
		changed := d
		changed.Body = append(append([]byte{}, d.Body...), ' ')
		if err := send("another body", refused, changed, h); err != nil {
			return nil, err
		}
	}
	wrong := d
	wrong.Secret = newSecret(e.Source)
	if h, err = wrong.sign(newUUID(), now); err != nil {
		return nil, err
	}
	return round, send("another secret", refused, wrong, h)
}

func (c *cli) endpointRotate() *cobra.Command {
	var stdin bool
	cmd := &cobra.Command{
		Use: "rotate-secret NAME", Short: "Make an endpoint's next secret; print how to change over without losing a delivery",
		Long: "Write the endpoint's next secret to a new 0600 file beside the configuration and print the steps: both secrets are\n" +
			"active until the vendor signs with the new one. The configuration is not changed: it has one author. Sentry and Linear\n" +
			"make their secrets themselves: pipe theirs in with --stdin.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := c.file(cmd)
			cfg, err := config.Check(path)
			if err != nil {
				return err
			}
			e, err := webhookEndpoint(cfg, args[0])
			if err != nil {
				return err
			}
			if len(e.Secrets) > 1 {
				return problem.New(problem.Conflict, "endpoint "+e.Name+" has two secrets: a rotation is under way", "remove the old one from secrets first")
			}
			value, err := c.secretOf(e.Source, stdin)
			if err != nil {
				return err
			}
			name, err := writeNext(filepath.Dir(path), e.Name, value)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "Wrote the next secret to %s (0600).\n", name)
			if !stdin {
				fmt.Fprintf(c.out, "It is shown here once:\n  %s\n", value.Reveal())
			}
			fmt.Fprintf(c.out, `
1. In gatehouse.yaml, endpoint %[1]s; then restart the node:
     secrets: ["${file:%[2]s}", "%[3]s"]
2. Give the vendor the new secret.
3. gatehouse event list --endpoint %[1]s -o ndjson: "key":"k1" is the new secret, "k2" the old one.
4. When nothing comes under k2 any more, remove the old one; then restart the node:
     secrets: ["${file:%[2]s}"]
`, e.Name, name, e.Secrets[0].Ref())
			return nil
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "read the secret that the vendor made from the standard input")
	return cmd
}

// maxSecretInput bounds what is read as a secret.
const maxSecretInput = 4 << 10

// secretOf returns a fresh secret, or the vendor's own from the standard input.
func (c *cli) secretOf(source string, stdin bool) (secret.Value, error) {
	if !stdin {
		if source == sentry.Name || source == linear.Name {
			return secret.Value{}, usage(source+" makes the secret itself", "pipe it in with --stdin")
		}
		return newSecret(source), nil
	}
	b, err := io.ReadAll(io.LimitReader(c.in, maxSecretInput+1))
	if err != nil {
		return secret.Value{}, fmt.Errorf("couldn't read the secret: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if len(b) > maxSecretInput || strings.ContainsAny(text, "\r\n") {
		return secret.Value{}, usage("the standard input is not one secret", "give it alone, on one line")
	}
	if text == "" {
		return secret.Value{}, usage("there is no secret on the standard input", "pipe in the one that "+source+" shows")
	}
	v := secret.FromString(text)
	// The source itself judges it, so that a secret it would not start with is
	// never written.
	if _, err := endpointOf(config.Endpoint{Name: "new", Source: source, Token: &config.Token{}}, []secret.Value{v}); err != nil {
		return secret.Value{}, err
	}
	return v, nil
}

// newSecret returns 32 random bytes in the form that a source's senders use.
func newSecret(source string) secret.Value {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	if source == webhook.NameStandard {
		return secret.FromString("whsec_" + base64.StdEncoding.EncodeToString(b[:]))
	}
	return secret.FromString(hex.EncodeToString(b[:]))
}

// writeNext writes a secret to the first free file of an endpoint and returns
// its name: main.2.key, main.3.key ...
func writeNext(dir, endpoint string, value secret.Value) (string, error) {
	for n := 2; n < 1000; n++ {
		name := fmt.Sprintf("%s.%d.key", endpoint, n)
		switch err := writeSecretFile(filepath.Join(dir, name), value); {
		case err == nil:
			return name, nil
		case !errors.Is(err, fs.ErrExist):
			return "", fmt.Errorf("couldn't write the secret: %w", err)
		}
	}
	return "", problem.New(problem.Conflict, "a thousand secrets of endpoint "+endpoint+" are here", "remove old ones")
}

// writeSecretFile writes a new 0600 file. An existing one is never overwritten:
// somebody may be signing with it.
func writeSecretFile(path string, value secret.Value) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\n", value.Reveal())
	return errors.Join(err, f.Close())
}
