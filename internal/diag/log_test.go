package diag_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/diag"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// canaries are shaped like credentials and valid nowhere.
var canaries = map[string]string{
	"bearer":      "Bearer Y2FuYXJ5LWNhbmFyeS1jYW5hcnk",
	"basic":       "basic dXNlcjpwYXNzd29yZA==",
	"github":      "ghs_CanaryCanaryCanaryCanaryCanary123456",
	"github_pat":  "github_pat_11CANARY0_canarycanarycanary",
	"anthropic":   "sk-ant-api03-canarycanarycanary",
	"slack":       "xoxb-1234567890-canary",
	"aws":         "AKIACANARYCANARY0000",
	"google":      "AIzaCanaryCanaryCanaryCanaryCanary12345",
	"jwt":         "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeQ",
	"placeholder": "gatehouse_ph_canarycanary",
	"private_key": "-----BEGIN PRIVATE KEY-----\nQ0FOQVJZ\n-----END PRIVATE KEY-----",
}

type custom struct{ Name, Header string }

func (c custom) String() string { return c.Name }

type lazy struct{ v string }

func (l lazy) LogValue() slog.Value { return slog.GroupValue(slog.String("inner", l.v)) }

func TestSecretsAreNotLogged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for name, canary := range canaries {
			t.Run(format+"/"+name, func(t *testing.T) {
				var out bytes.Buffer
				log, err := diag.NewLogger(&out, diag.LogOptions{Format: format})
				if err != nil {
					t.Fatal(err)
				}
				url := "https://user:" + "pw-canary" + "@host.example/x"
				log.With(slog.String("with", canary), slog.Group("g", slog.String("in", canary))).
					WithGroup("wg").
					Error("failed with "+canary,
						slog.String("plain", "before "+canary+" after"),
						slog.Any("err", fmt.Errorf("dial: %w", errors.New(canary))),
						slog.Any("struct", custom{"x", canary}),
						slog.Any("bytes", []byte(canary)),
						slog.Any("list", []string{canary}),
						slog.Any("map", map[string]string{"h": canary}),
						slog.Any("lazy", lazy{canary}),
						slog.Group("deep", slog.Group("er", slog.String("in", canary))),
						slog.String("url", url),
					)
				got := out.String()
				for _, part := range strings.Split(canary, "\n") {
					if part = strings.TrimSpace(part); strings.Contains(got, part) {
						t.Errorf("%q is in the log:\n%s", part, got)
					}
				}
				if strings.Contains(got, "pw-canary") || !strings.Contains(got, "host.example") {
					t.Errorf("the URL came out as:\n%s", got)
				}
				if !strings.Contains(got, "before") || !strings.Contains(got, "dial: ") {
					t.Errorf("more than the secret was removed:\n%s", got)
				}
			})
		}
	}
}

func TestSecretKeysAreNotLogged(t *testing.T) {
	for _, key := range []string{"Authorization", "proxy-authorization", "Cookie", "set-cookie", "X-Api-Key", "api_key", "token", "access_token", "client_secret", "password", "private_key"} {
		t.Run(key, func(t *testing.T) {
			var out bytes.Buffer
			log, err := diag.NewLogger(&out, diag.LogOptions{})
			if err != nil {
				t.Fatal(err)
			}
			log.Info("x", slog.String(key, "canary"), slog.Group("g", slog.String(key, "canary")), slog.String("tokens", "12"))
			if strings.Contains(out.String(), "canary") || !strings.Contains(out.String(), "tokens=12") {
				t.Fatal(out.String())
			}
		})
	}
}

// TestSecretValueDoesNotPrint covers the type that is the real defence.
func TestSecretValueDoesNotPrint(t *testing.T) {
	v := secret.FromString("canary-without-any-shape")
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := diag.NewLogger(&out, diag.LogOptions{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		log.With(slog.Any("v", v)).Info("x", slog.Any("v", v), slog.Any("p", &v), slog.Any("s", struct{ V secret.Value }{v}), slog.Any("l", []secret.Value{v}))
		if strings.Contains(out.String(), "canary") {
			t.Fatal(out.String())
		}
	}
}

// TestValuesKeepTheirForm: what holds no secret comes out as it went in.
func TestValuesKeepTheirForm(t *testing.T) {
	var out bytes.Buffer
	log, err := diag.NewLogger(&out, diag.LogOptions{Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("started", slog.Int("n", 3), slog.Duration("d", time.Second), slog.Bool("b", true),
		slog.Any("list", []int{1, 2}), slog.Any("code", problem.NotFound), slog.Any("err", errors.New("plain")),
		slog.Time("at", time.Unix(0, 0).UTC()))
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["n"] != 3.0 || got["b"] != true || fmt.Sprint(got["list"]) != "[1 2]" || got["code"] != "not_found" || got["err"] != "plain" || got["at"] != "1970-01-01T00:00:00Z" {
		t.Fatal(out.String())
	}
}

// TestOneLinePerRecord: text of strangers cannot forge a second line.
func TestOneLinePerRecord(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := diag.NewLogger(&out, diag.LogOptions{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("x", slog.String("branch", "a\nlevel=ERROR msg=forged\r\n\x1b[31m"))
		if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 || bytes.ContainsAny(out.Bytes(), "\r\x1b") {
			t.Fatalf("%q", out.String())
		}
	}
}

func TestLevelsAndFormats(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	log, err := diag.NewLogger(&out, diag.LogOptions{Level: &level})
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	level.Set(slog.LevelDebug)
	log.Debug("shown")
	if got := out.String(); strings.Contains(got, "hidden") || !strings.Contains(got, "shown") {
		t.Fatal(got)
	}
	if _, err := diag.NewLogger(&out, diag.LogOptions{Format: "xml"}); problem.CodeOf(err) != problem.ConfigInvalid {
		t.Fatal(err)
	}
}
