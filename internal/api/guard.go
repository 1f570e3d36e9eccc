package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
)

// headers are on every answer. Transcripts and events hold text of strangers:
// nothing here may be sniffed, framed, cached or run.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// The UI sets its own, wider policy.
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		next.ServeHTTP(w, r)
	})
}

// hosts refuses names that are not ours, so that a page whose name was pointed
// at this address (DNS rebinding) gets nothing.
func (a *API) hosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(a.o.Hosts, strings.ToLower(r.Host)) {
			refuse(w, problemOf(problem.HostNotListed, "this listener does not answer to that host", "Open the address the node printed, or list the host in the configuration."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// origins refuses other sites' requests. A request that changes something must
// say that it comes from a listed origin; a browser always can.
func (a *API) origins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin, safe := r.Header.Get("Origin"), r.Method == http.MethodGet || r.Method == http.MethodHead
		site := r.Header.Get("Sec-Fetch-Site")
		// A token is nothing that a browser adds by itself: its bearer is no page.
		program := r.Header.Get("Authorization") != "" && r.Header.Get("Cookie") == "" && site == ""
		foreign := origin != "" && !slices.Contains(a.o.Origins, origin) || len(r.Header.Values("Origin")) > 1 ||
			!safe && (origin == "" && !program || site != "" && site != "same-origin")
		if foreign {
			refuse(w, problemOf(problem.OriginNotListed, "this listener does not take requests from that origin", "Use the UI at its own address, or the unix socket."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticated lets through who is logged in or has a token, and the login
// itself. A form of a page must carry what only that login's pages know.
func (a *API) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && (r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/login/")) {
			next.ServeHTTP(w, r)
			return
		}
		id, err := a.o.Auth.Identify(r)
		if err != nil {
			if wantsPage(r) && problem.CodeOf(err) == problem.Unauthenticated {
				http.Redirect(w, r, "/login?"+url.Values{"to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
				return
			}
			refuse(w, a.fail(err))
			return
		}
		via := "ui"
		switch {
		case id.Kind == auth.KindToken:
			via = "api"
		case strings.HasPrefix(r.URL.Path, "/ui/") && r.Method != http.MethodGet && r.Method != http.MethodHead:
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if err := auth.CheckForm(id, r); err != nil {
				refuse(w, a.fail(err))
				return
			}
		}
		a.serve(next, w, r, id, via, false)
	})
}

// stillEvery is how often an answer that goes on looks whether its reader may read
// on.
const stillEvery = time.Second

// serve serves a caller. What only reads ends with the caller's login, token or
// role, however long it goes on: streams of receipts and of pages have no end of
// their own (T-15). A step that was allowed is taken.
func (a *API) serve(next http.Handler, w http.ResponseWriter, r *http.Request, id auth.Identity, via string, socket bool) {
	ctx, end := context.WithCancel(withCaller(r.Context(), id, via, socket))
	defer end()
	if r.Method == http.MethodGet {
		a.watch(ctx, end)
	}
	next.ServeHTTP(w, r.WithContext(ctx))
}

// watch ends a context when its caller may read no more.
func (a *API) watch(ctx context.Context, end context.CancelFunc) {
	time.AfterFunc(stillEvery, func() {
		switch {
		case ctx.Err() != nil:
		case !a.mayReadOn(ctx):
			end()
		default:
			a.watch(ctx, end)
		}
	})
}

// mayReadOn reports whether the caller may read now.
func (a *API) mayReadOn(ctx context.Context) bool {
	now, err := a.o.Auth.Still(callerOf(ctx).identity)
	return err == nil && Allow(now, read, a.o.Clock()) == nil
}

// maxForm bounds a form: a bundle with room.
const maxForm = 2 << 20

// wantsPage tells a person's browser from a program.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && (r.Method == http.MethodGet || r.URL.Path == "/logout")
}
