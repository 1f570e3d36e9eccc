package api

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"time"

	"gatehouse/internal/problem"
)

// LoginLink makes a one-time link for the operator listener: single use, 60 s.
// It is refused unless that listener is bound to loopback.
func (a *API) LoginLink(name string) (url string, expires time.Time, err error) {
	return a.o.Auth.Link(name)
}

// logins adds the routes of logging in and out. They are the only ones that
// answer without a login, and the socket has none of them.
func (a *API) logins() {
	answer := func(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := error(problem.New(problem.LoginLinkInvalid, "nobody logs in on the socket", "Open the operator listener."))
			if !callerOf(r.Context()).socket {
				err = f(w, r)
			}
			if err != nil {
				refuse(w, a.fail(err))
			}
		}
	}
	a.mux.HandleFunc("GET /login", answer(func(w http.ResponseWriter, r *http.Request) error {
		a.loginPage(w, r)
		return nil
	}))
	a.mux.HandleFunc("GET /login/oidc", answer(func(w http.ResponseWriter, r *http.Request) error {
		return a.o.Auth.Begin(w, r, r.URL.Query().Get("to"), r.URL.Query().Has("again"))
	}))
	a.mux.HandleFunc("GET /login/oidc/callback", answer(a.o.Auth.Finish))
	a.mux.HandleFunc("GET /login/{token}", answer(func(w http.ResponseWriter, r *http.Request) error {
		if err := a.o.Auth.OpenLink(w, r, r.PathValue("token")); err != nil {
			return err
		}
		to := "/v1/status"
		if a.o.UI != nil {
			to = "/ui/"
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil
	}))
	a.mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		a.o.Auth.Logout(w, r)
		if wantsPage(r) {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// loginPage says how to log in. It works without scripts and styles.
func (a *API) loginPage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	how := `<p>This node has no identity provider. On its machine, run <code>gatehouse login</code> and open the link that it prints; it works once, for a minute.</p>`
	if a.o.Auth.HasOIDC() {
		q := url.Values{"to": {r.URL.Query().Get("to")}}
		if r.URL.Query().Has("again") {
			q.Set("again", "1")
		}
		how = `<p><a href="/login/oidc?` + html.EscapeString(q.Encode()) + `">Log in</a></p><p>On the node's machine, <code>gatehouse login</code> prints a link.</p>`
	}
	fmt.Fprintf(w, `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><title>Log in - Gatehouse</title></head><body><main><h1>Gatehouse</h1>%s</main></body></html>`, how)
}
