package upstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// TestCutRequest: a request under way on a kept connection ends with its session,
// with its policy and with its client, and the outcome says which; and its server
// is left.
func TestCutRequest(t *testing.T) {
	o := newOutside(t)
	for name, c := range map[string]struct {
		end  func(s *session, leave context.CancelCauseFunc)
		code string
	}{
		"EG-70_session": {func(s *session, _ context.CancelCauseFunc) { s.gate.Revoke(enforcers.CodeRevoked) }, enforcers.CodeRevoked},
		"EG-100_policy": {func(s *session, _ context.CancelCauseFunc) {
			s.gate.Swap(enforcers.Policy{Enforcers: []enforcers.Bound{{Enforcer: judge{enforcers.Allow}, Mode: receipts.Hard, Builtin: true}}})
		}, enforcers.CodeGeneration},
		"client": {func(_ *session, leave context.CancelCauseFunc) { leave(errors.New("gone")) }, enforcers.CodeClientGone},
	} {
		for _, when := range []string{"head", "body", "reading"} {
			for _, scheme := range []string{"http", "https"} {
				t.Run(name+"_"+when+"_"+scheme, func(t *testing.T) {
					client := newClient(t, o, nil)
					s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
					o.handle(nil)
					if _, err := do(t, client, s.permit(t, scheme+"://example.com/", ""), plain("")); err != nil {
						t.Fatal(err)
					}
					s.log.outcome(t)
					ctx, leave := context.WithCancelCause(t.Context())
					defer leave(nil)
					left, answered := make(chan struct{}), make(chan struct{})
					accepted := o.accepts.Load()
					o.handle(func(w http.ResponseWriter, r *http.Request) {
						defer close(left)
						if when != "head" {
							_, _ = io.WriteString(w, "x")
							_ = http.NewResponseController(w).Flush()
						}
						switch when {
						case "reading":
							<-answered
							c.end(s, leave)
						case "head":
							c.end(s, leave)
						}
						<-r.Context().Done()
					})
					resp, err := client.Do(s.permit(t, scheme+"://example.com/", ""), plain("").WithContext(ctx))
					effect := enforcers.Unknown
					if when != "head" {
						if close(answered); err != nil {
							t.Fatal(err)
						}
						effect = enforcers.Forwarded
						if when == "body" {
							if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
								t.Fatal(err)
							}
							c.end(s, leave)
						}
						_, err = io.ReadAll(resp.Body)
						_ = resp.Body.Close()
					}
					if string(problem.CodeOf(err)) != c.code {
						t.Errorf("%v, want %s", err, c.code)
					}
					if out := s.log.outcome(t); out.Effect != effect || out.Code != c.code {
						t.Errorf("%+v", out)
					}
					<-left
					if n := o.accepts.Load() - accepted; n != 0 {
						t.Errorf("%d new connections: it was not the kept one", n)
					}
				})
			}
		}
	}
}
