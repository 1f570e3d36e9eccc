package diag

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"gatehouse/internal/problem"
)

// LogOptions configures a logger.
type LogOptions struct {
	Format string       // text (for people) | json; "" = text
	Level  slog.Leveler // nil = info
}

// NewLogger returns a logger that writes one line a record to w. It removes
// what looks like a credential (see redact), which is a tripwire behind
// secret.Value and not a licence to log one.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: o.Level}
	switch o.Format {
	case "", "text":
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
				a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
			}
			return a
		}
		return slog.New(redactor{slog.NewTextHandler(w, opts)}), nil
	case "json":
		return slog.New(redactor{slog.NewJSONHandler(w, opts)}), nil
	}
	return nil, problem.New(problem.ConfigInvalid, fmt.Sprintf("unknown log format %q", o.Format), "Use text or json.")
}

const redacted = "[redacted]"

// secretKeys are attribute names whose value is never printed.
var secretKeys = []string{
	"authorization", "proxyauthorization", "cookie", "setcookie", "apikey", "xapikey", "token", "accesstoken",
	"refreshtoken", "idtoken", "secret", "clientsecret", "password", "passwd", "privatekey", "credential",
}

// shapes are values that are credentials wherever they stand.
var shapes = regexp.MustCompile(strings.Join([]string{
	`(?i:\b(?:bearer|basic|token)\s+[a-z0-9+/_=.~-]{12,})`,
	`\bgh[pousr]_[A-Za-z0-9]{16,}`,
	`\bgithub_pat_[A-Za-z0-9_]{16,}`,
	`\bsk-[A-Za-z0-9_-]{16,}`,
	`\bxox[abeprs]-[A-Za-z0-9-]{10,}`,
	`\bA(?:KIA|SIA)[0-9A-Z]{16}\b`,
	`\bAIza[0-9A-Za-z_-]{35}`,
	`\bgatehouse_ph_[A-Za-z0-9_-]{8,}`,
	`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`,
	`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?`,
}, "|"))

// userinfo is the password part of a URL.
var userinfo = regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`)

func scrub(s string) string {
	s = shapes.ReplaceAllString(s, redacted)
	return userinfo.ReplaceAllString(s, "${1}"+redacted+"@")
}

// redactor scrubs messages and attributes before the next handler sees them.
type redactor struct{ next slog.Handler }

func (r redactor) Enabled(ctx context.Context, l slog.Level) bool { return r.next.Enabled(ctx, l) }

func (r redactor) Handle(ctx context.Context, rec slog.Record) error {
	out := slog.NewRecord(rec.Time, rec.Level, scrub(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(redact(a))
		return true
	})
	return r.next.Handle(ctx, out)
}

func (r redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redact(a)
	}
	return redactor{r.next.WithAttrs(clean)}
}

func (r redactor) WithGroup(name string) slog.Handler { return redactor{r.next.WithGroup(name)} }

func redact(a slog.Attr) slog.Attr {
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(a.Key))
	if slices.Contains(secretKeys, plain) {
		return slog.String(a.Key, redacted)
	}
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(scrub(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, g := range group {
			clean[i] = redact(g)
		}
		v = slog.GroupValue(clean...)
	case slog.KindAny:
		v = scrubAny(v)
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// scrubAny keeps a value's form unless a credential shows in one of the texts a
// handler could make of it.
func scrubAny(v slog.Value) slog.Value {
	texts := []string{fmt.Sprintf("%+v", v.Any())}
	if b, ok := v.Any().([]byte); ok {
		texts[0] = string(b)
	}
	if b, err := json.Marshal(v.Any()); err == nil {
		texts = append(texts, string(b))
	}
	for _, t := range texts {
		if clean := scrub(t); clean != t {
			return slog.StringValue(clean)
		}
	}
	return v
}
