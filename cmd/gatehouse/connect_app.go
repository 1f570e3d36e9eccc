package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/ingest/github"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// manifestLimit is how long `connect github --create-app` waits for a person;
// GitHub's code is good for an hour.
const manifestLimit = time.Hour

// newApp is what --create-app and its companions say.
type newApp struct {
	create              bool
	name, organization  string
	events, permissions []string
	dev                 bool
}

// check refuses what GitHub or the node would, before anybody is sent anywhere.
func (n newApp) check(cfg *config.Config, app githubApp) (github.Manifest, error) {
	m := github.Manifest{Name: n.name, URL: cfg.PublicURL, Hook: github.ManifestHook{Active: true}}
	switch u, err := url.Parse(cfg.PublicURL); {
	case app.id != 0 || app.key != "":
		return m, usage("--create-app makes the App; --app-id and --app-key name one that is there", "leave one of them out")
	case err != nil || u.Scheme != "https":
		return m, problem.New(problem.ConfigInvalid, "public_url is not set to an https URL", "GitHub delivers there; set it first")
	case n.name == "" || len(n.name) > 34:
		return m, usage("--app-name is not 1 to 34 characters", "GitHub's names are unique, for example acme-gatehouse")
	case strings.Trim(n.organization, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "":
		return m, usage("--organization is not an organization's login", "")
	}
	return m, m.Subscribe(n.events, n.permissions)
}

// createApp has a person make the App on GitHub and writes down what it is made
// of. It opens a listener on loopback for the person's browser, and makes one
// call through upstream: there is no node yet, so the call is shown here and has
// no receipt.
func (c *cli) createApp(ctx context.Context, cfg *config.Config, dir, endpoint string, app githubApp, n newApp) error {
	m, err := n.check(cfg, app)
	if err != nil {
		return err
	}
	if app.key = app.connection + ".pem"; !filepath.IsLocal(app.key) || strings.ContainsAny(app.key, `/\`) {
		return usage("--connection is not a name", "")
	}
	for _, name := range []string{app.key, endpoint + ".key"} {
		if err := absent(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	conn := config.Connection{Name: app.connection, API: app.api}
	api, to, err := apiOf(conn)
	if err != nil {
		return err
	}
	up, err := newUpstream(cfg, nil, nil, n.dev)
	if err != nil {
		return err
	}
	defer func() { _ = up.Close() }() // it has no state that could be lost
	o := upstream.NodeOptions{Purpose: "github.manifest", To: to, Begin: func(_ context.Context, method string) (func(enforcers.Outcome), error) {
		fmt.Fprintf(c.err, "gatehouse: %s %s://%s%sapp-manifests/...\n", method, to.Scheme(), to.HostPort(), api.Path)
		return func(enforcers.Outcome) {}, nil
	}}
	if app.api != "" {
		o.Addresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")} // as for the node's own calls
	}
	if app.ca != "" {
		if o.Roots, err = rootsOf(inside(dir, app.ca)); err != nil {
			return problem.Wrap(err, problem.Usage, "couldn't read --ca", "give a PEM file with the authority's certificate")
		}
	}
	transport, err := up.Node(o)
	if err != nil {
		return err
	}
	m.Hook.URL = publicURL(cfg, endpoint)
	code, err := c.agree(ctx, m, func(state string) *url.URL { return github.ManifestPage(api, n.organization, state) })
	if err != nil {
		return err
	}
	made, err := github.Create(ctx, api, transport, code)
	if err != nil {
		return fmt.Errorf("couldn't fetch the App that was made: %w", err)
	}
	// The key first: GitHub shows neither again, but an App gets a new key easily.
	app.id = made.ID
	if err := writeSecretOf(filepath.Join(dir, app.key), made.Key); err != nil {
		return err
	}
	if err := writeSecretOf(filepath.Join(dir, endpoint+".key"), made.Secret); err != nil {
		return err
	}
	fmt.Fprintf(c.out, `Made the App %[1]s. Wrote its private key to %[2]s and its webhook secret to %[3]s.key (0600).

Install it on the repositories it may see:
  %[4]s/installations/new

`, made.Slug, app.key, endpoint, made.Page)
	fmt.Fprint(c.out, app.yaml(endpoint, "${file:"+endpoint+".key}"))
	return nil
}

// agree shows a person the manifest on a page of this machine that hands it to
// GitHub, and waits for the code that GitHub's answer brings back.
func (c *cli) agree(ctx context.Context, m github.Manifest, at func(state string) *url.URL) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, manifestLimit)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("couldn't listen for the browser: %w", err)
	}
	state, key := newNonce(), newNonce()
	m.Redirect = "http://" + l.Addr().String() + "/made"
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	codes := make(chan string, 1)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: agreement(l.Addr().String(), key, state, text, at(state), codes)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	defer func() {
		// Lets the browser's last page out.
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		if srv.Shutdown(stop) != nil {
			_ = srv.Close()
		}
		<-served
	}()
	fmt.Fprintf(c.err, "Open in a browser on this machine, within an hour:\n  http://%s/?key=%s\n", l.Addr(), key)
	select {
	case code := <-codes:
		return code, nil
	case <-ctx.Done():
		return "", errors.New("nobody made the App; run the command again")
	}
}

// agreement serves two pages: the form, to who has the key, and the way back, to
// who has the state. Another Host is a page of somebody else that a browser was
// led to; neither value is ever logged.
func agreement(host, key, state string, manifest []byte, to *url.URL, codes chan<- string) http.Handler {
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, status int, t *template.Template, data any) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; form-action https://"+to.Host+"; frame-ancestors 'none'; base-uri 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = t.Execute(w, data)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if !equal(r.URL.Query().Get("key"), key) {
			page(w, http.StatusForbidden, saidPage, "This page is opened by the address that gatehouse printed.")
			return
		}
		page(w, http.StatusOK, formPage, map[string]any{"To": to.String(), "Host": to.Host, "Manifest": string(manifest)})
	})
	mux.HandleFunc("GET /made", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if !equal(q.Get("state"), state) || q.Get("code") == "" {
			page(w, http.StatusForbidden, saidPage, "This is not the answer to the question that gatehouse asked.")
			return
		}
		select {
		case codes <- q.Get("code"):
			page(w, http.StatusOK, saidPage, "GitHub has made the App. Back to the terminal: it says what to do next.")
		default:
			page(w, http.StatusConflict, saidPage, "This was answered already.")
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host {
			http.Error(w, "misdirected", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Without a script a person presses the button, having seen what will be asked.
var (
	formPage = template.Must(template.New("form").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>Make a GitHub App</title>
<h1>Make a GitHub App</h1>
<p>{{.Host}} will be asked for the App below. It shows it to you before it is made.</p>
<pre>{{.Manifest}}</pre>
<form method="post" action="{{.To}}"><input type="hidden" name="manifest" value="{{.Manifest}}"><button>Go on to {{.Host}}</button></form>
</html>
`))
	saidPage = template.Must(template.New("said").Parse("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>gatehouse</title><p>{{.}}</p></html>\n"))
)

func newNonce() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
