package door_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/receipts"
)

const (
	blob        = "blob.good.test"
	signature   = "5f1c0de5ca1ab1e05f1c0de5ca1ab1e0"
	signedQuery = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=300&X-Amz-Signature=" + signature
	signedURL   = "https://" + blob + "/objects/1?" + signedQuery
	object      = "what the object holds"
)

// blobRule lets objects be read, by rule egress[20]; egress[21] lets an encoded
// slash through, for comparison.
const blobRule = `{"host":"blob.good.test","id":"egress[20]","methods":["GET","HEAD","POST"],"paths":["/objects/**"],"ports":[443],"schemes":["https"]},` +
	`{"encoded_slash":true,"host":"slash.good.test","id":"egress[21]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]},`

var blobPolicy = strings.Replace(boundPolicy, `"egress":[`, `"egress":[`+blobRule, 1)

// aboutTheHost is what a store must not say of the door's own name.
var aboutTheHost = []string{"Strict-Transport-Security", "Clear-Site-Data", "Service-Worker-Allowed", "Nel", "Report-To", "Set-Cookie", "Alt-Svc"}

// store answers as a host that redirects to a signed URL, and as a store that
// needs one.
func store(location string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == bound:
			http.Redirect(w, r, location, http.StatusFound) // says it again in its body
		case r.URL.RawQuery != signedQuery:
			http.Error(w, "not signed", http.StatusForbidden)
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
			for _, name := range aboutTheHost {
				w.Header().Set(name, "x")
			}
			_, _ = io.WriteString(w, object)
		}
	}
}

// doorURL asks for what redirects to location and returns where the door leads
// instead.
func (in *inside) doorURL(t testing.TB, location string) string {
	t.Helper()
	in.out.handle(t, store(location))
	return in.led(t, to(bound, "GET /v1/x")(in))
}

// led returns the path of the door URL that an answer leads to.
func (in *inside) led(t testing.TB, re reply) string {
	t.Helper()
	path, ok := strings.CutPrefix(re.header.Get("Location"), "https://"+door.Reserved)
	if re.status < 300 || re.status > 399 || !ok || re.body != "" || re.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("the client is led by %d %v %q %v", re.status, re.header, re.body, re.err)
	}
	return path
}

func atDoor(line string, fields ...string) func(*inside) reply {
	return to(door.Reserved, line, fields...)
}

// TestBypassMatrixDoorURLs: EG-108. What comes of a door URL, in both modes: a
// request to the real host, that carries the signed query and nothing else.
func TestBypassMatrixDoorURLs(t *testing.T) {
	o := newOutside(t)
	type caseOf struct {
		location     string                              // "" = signedURL
		do           func(in *inside, path string) reply // nil = GET
		hard, shadow want                                // shadow zero = as hard
		setup        func(t *testing.T, in *inside)      // after the door URL was given
		check        func(t *testing.T, in *inside, re reply)
	}
	ask := func(line string, fields ...string) func(*inside, string) reply {
		return func(in *inside, path string) reply {
			return atDoor(strings.Replace(line, "URL", path, 1), fields...)(in)
		}
	}
	read := allowed(200, "egress[20]")
	authority := denied(403, enforcers.CodeNeedsAuthority)
	refused := denied(403, enforcers.CodeDoorURLUse)
	for name, c := range map[string]caseOf{
		"EG-108_get": {hard: read, check: func(t *testing.T, in *inside, re reply) {
			if re.body != object || !strings.HasPrefix(re.header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%v %q", re.header, re.body)
			}
			for _, name := range aboutTheHost {
				if re.header.Get(name) != "" {
					t.Errorf("%s came in", name)
				}
			}
		}},
		"EG-108_head": {do: ask("HEAD URL"), hard: read},
		"EG-108_cleartext": {do: func(in *inside, path string) reply {
			return inTunnelHTTP(door.Reserved+":80", get(door.Reserved, path))(in)
		}, hard: read},
		"EG-108_post":     {do: ask("POST URL"), hard: refused},
		"EG-108_put":      {do: ask("PUT URL", "Content-Length: 0"), hard: refused},
		"EG-108_odd_case": {do: ask("get URL"), hard: refused},
		"EG-108_get_body": {do: func(in *inside, path string) reply {
			return in.https(door.Reserved+":443", door.Reserved, "GET "+path+" HTTP/1.1\r\nHost: "+door.Reserved+"\r\nContent-Length: 4\r\n\r\nbody")
		}, hard: refused},
		"EG-108_other_method": {do: ask("GET URL", "X-HTTP-Method-Override: DELETE"), hard: denied(403, enforcers.CodeMethodRefused)},
		"EG-108_query":        {do: ask("GET URL?versionId=2"), hard: refused},
		"EG-108_upgrade":      {do: ask("GET URL", "Connection: Upgrade", "Upgrade: websocket"), hard: refused},
		"EG-108_below":        {do: ask("GET URL/x"), hard: denied(403, enforcers.CodeDoorURL)},
		"EG-108_guessed":      {do: func(in *inside, _ string) reply { return atDoor("GET /url/AAAAAAAAAAAAAAAAAAAAAAAAAA")(in) }, hard: denied(403, enforcers.CodeDoorURL)},
		"EG-108_no_handle":    {do: func(in *inside, _ string) reply { return atDoor("GET /url/")(in) }, hard: denied(403, enforcers.CodeDoorURL)},
		"EG-108_unlisted":     {location: "https://cdn.test/x?" + signedQuery, hard: denied(403, "host_not_listed"), shadow: authority},
		"EG-108_unknown_kind": {location: "https://cdn.test/x?verify=1690000000-abc", hard: denied(403, "host_not_listed"), shadow: authority},
		"EG-108_path":         {location: "https://" + blob + "/private/1?" + signedQuery, hard: denied(403, "path_not_listed"), shadow: authority},
		"EG-108_port":         {location: "https://" + blob + ":8443/objects/1?" + signedQuery, hard: denied(403, "port_not_listed"), shadow: authority},
		"EG-108_metadata":     {location: "https://metadata.google.internal/x?" + signedQuery, hard: denied(403, enforcers.CodeMetadata)},
		"EG-108_relay":        {location: "https://pastebin.com/x?" + signedQuery, hard: denied(403, "host_not_listed"), shadow: authority},
		"EG-108_private": {hard: stopped(403, enforcers.CodeAddressNotPublic).at("egress[20]"), setup: func(t *testing.T, in *inside) {
			in.out.at(t, blob, func(q dns.Question) *dns.Msg { return answer(q, "10.0.0.5") })
		}},
		"EG-108_certificate": {hard: stopped(502, enforcers.CodeTLS).at("egress[20]").dialed(1), setup: func(t *testing.T, in *inside) {
			in.out.present(t, func(i *issuer) (*tls.Certificate, error) { return i.issue("other.test") })
		}},
		"EG-108_placeholder_sent_on": {do: func(in *inside, path string) reply {
			return atDoor("GET "+path, "X-Api-Key: "+in.door.Environment()["BOUND_TOKEN"])(in)
		}, hard: read},
		"EG-108_placeholder_of_another": {do: func(in *inside, path string) reply {
			return atDoor("GET "+path, "X-Api-Key: "+in.door.Environment()["OTHER_TOKEN"])(in)
		}, hard: denied(403, enforcers.CodePlaceholderHost)},
		"EG-108_foreign_credential": {do: ask("GET URL", "Authorization: Bearer mine"), hard: denied(403, enforcers.CodeForeignCredential)},
		"EG-108_range": {do: ask("GET URL", "Range: bytes=0-9"), hard: read, check: func(t *testing.T, in *inside, re reply) {
			if re.body != object { // EG-105
				t.Errorf("%q", re.body)
			}
		}},
		"EG-108_other_session": {do: func(in *inside, path string) reply {
			// The one who asks is another session of the same node; nothing reaches the
			// outside for it, which the step's counts show.
			theirs := open(in.t, in.out, setup{mode: in.gate.Mode(), policy: blobPolicy, inject: connections(in.t), session: "s-2"})
			re := atDoor("GET " + path)(theirs)
			if d, _ := theirs.rec.last(); re.status != 403 || d.Decision.Reason != enforcers.CodeDoorURL || d.Decision.Passed {
				in.t.Errorf("another session saw %d %s", re.status, re.body)
			}
			return atDoor("GET " + path)(in) // and it is of use to its own
		}, hard: read},
		"EG-108_after_a_change": {hard: denied(403, enforcers.CodeDoorURL), setup: func(t *testing.T, in *inside) {
			in.gate.Swap(policyOf(t, blobPolicy))
		}},
		"EG-108_in_a_header": {hard: stopped(502, enforcers.CodeAnswerCredential).at("egress[20]").dialed(1), setup: func(t *testing.T, in *inside) {
			in.out.handle(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Was", r.URL.Query().Get("X-Amz-Signature"))
			})
		}},
		"EG-108_in_a_trailer": {do: func(in *inside, path string) reply {
			re := atDoor("GET " + path)(in)
			if re.err == nil || strings.Contains(re.body, signature) {
				in.t.Errorf("the answer came whole: %v %q", re.header, re.body)
			}
			return re
		}, hard: allowed(200, "egress[20]").ended(enforcers.CodeAnswerCredential), setup: func(t *testing.T, in *inside) {
			in.out.handle(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Was")
				w.Header().Set("Content-Type", "application/octet-stream")
				_, _ = io.WriteString(w, strings.Repeat(object, 1<<10))
				w.Header().Set("X-Was", r.URL.Query().Get("X-Amz-Signature"))
			})
		}},
		"EG-108_redirect_holds_it_in_the_path": {hard: stopped(502, enforcers.CodeAnswerCredential).at("egress[20]").dialed(1), setup: func(t *testing.T, in *inside) {
			in.out.handle(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "https://"+blob+"/"+signature+"?a=0123456789")
				w.WriteHeader(http.StatusFound)
			})
		}},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				in := open(t, o, setup{mode: mode, policy: blobPolicy, inject: connections(t)})
				if c.location == "" {
					c.location = signedURL
				}
				if c.do == nil {
					c.do = ask("GET URL")
				}
				path := in.doorURL(t, c.location)
				if c.setup != nil {
					c.setup(t, in)
				}
				in.hangUp()
				from := in.mark()
				re := c.do(in, path)
				in.hangUp()
				w := c.hard
				if mode == receipts.Shadow && c.shadow != (want{}) {
					w = c.shadow
				}
				in.expect(t, from, re, w)
				in.covered(t)
				d, _ := in.rec.last()
				if w.code != enforcers.CodeDoorURL {
					place, _, _ := strings.Cut(strings.TrimPrefix(c.location, "https://"), "/")
					if d.Action.To().HostHeader() != place || d.Action.HTTP.Query != "" || d.Action.Connection != "" || !d.Action.Authority() {
						t.Errorf("the receipt is about %s %q %q", d.Action.To(), d.Action.HTTP.Query, d.Action.Connection)
					}
				}
				if d.Decision.Passed && !d.Durable {
					t.Error("it passed before its receipt was durable") // in shadow too: it uses authority
				}
				for _, r := range o.requests(from.tally) {
					if r.Host != blob || r.TLS == nil || r.RequestURI != "/objects/1?"+signedQuery || r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")+r.Header.Get("Range") != "" {
						t.Errorf("outside saw %s %s %v", r.Host, r.RequestURI, r.Header)
					}
				}
				if all := fmt.Sprint(re.header, re.body, re.err); strings.Contains(all, signature) {
					t.Errorf("the signature came in: %s", all)
				}
				if c.check != nil {
					c.check(t, in, re)
				}
				if in.gate.Context().Err() != nil {
					t.Error("the session ended")
				}
				in.end()
			})
		}
	}
}

// TestDoorURLNone: EG-108, EG-59. To all of these no door URL leads, and the
// answer stays outside.
func TestDoorURLNone(t *testing.T) {
	o := newOutside(t)
	in := open(t, o, setup{mode: receipts.Hard, policy: blobPolicy, inject: connections(t), routes: []door.Route{{
		Match:   func(r *door.Request) bool { return r.To.Host() == "git.good.test" },
		Handler: door.HandlerFunc(func(w http.ResponseWriter, r *door.Request) { t.Error("a mediator was asked") }),
	}}})
	redirect := func(locations ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = locations
			w.WriteHeader(http.StatusFound)
		}
	}
	status := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", signedURL)
			w.WriteHeader(n)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		line   string // "" = GET
		fields []string
	}{
		"address":          {answer: redirect("https://93.184.216.34/objects/1?" + signedQuery)},
		"address_v6":       {answer: redirect("https://[2606:2800::1]/objects/1?" + signedQuery)},
		"decimal_address":  {answer: redirect("https://1572395042/objects/1?" + signedQuery)},
		"user":             {answer: redirect("https://u:p@" + blob + "/objects/1?" + signedQuery)},
		"fragment":         {answer: redirect(signedURL + "#x")},
		"fragment_signs":   {answer: redirect("https://" + blob + "/objects/1?a=0123456789#access_token=1&token=0123456789")},
		"cleartext":        {answer: redirect("http://" + blob + "/objects/1?" + signedQuery)},
		"no_scheme":        {answer: redirect("//" + blob + "/objects/1?" + signedQuery)},
		"relative":         {answer: redirect("/v1/x?" + signedQuery)},
		"own_host":         {answer: redirect("https://" + bound + "/v1/x?" + signedQuery)},
		"other_connection": {answer: redirect("https://other.good.test/x?" + signedQuery)},
		"door":             {answer: redirect("https://" + door.Reserved + "/agent/v1/?" + signedQuery)},
		"mediated":         {answer: redirect("https://git.good.test/org/repo/x?" + signedQuery)},
		"short":            {answer: redirect("https://" + blob + "/objects/1?a=b")},
		"dots":             {answer: redirect("https://" + blob + "/objects/../1?" + signedQuery)},
		"encoded_slash":    {answer: redirect("https://" + blob + "/objects/a%2Fb?" + signedQuery)},
		"backslash":        {answer: redirect("https://" + blob + `\@evil.test/objects/1?` + signedQuery)},
		"blank":            {answer: redirect("https://" + blob + "/objects/1?" + signedQuery + " x")},
		"not_ascii":        {answer: redirect("https://" + blob + "/objects/1?" + signedQuery + "é")},
		"signed_in_path":   {answer: redirect("https://" + blob + "/objects/1;sig=" + signature + "?a=0123456789")},
		"long":             {answer: redirect("https://" + blob + "/objects/1?" + signedQuery + strings.Repeat("x", 8<<10))},
		"two":              {answer: redirect(signedURL, signedURL)},
		"created":          {answer: status(http.StatusCreated)},
		"not_a_redirect":   {answer: status(http.StatusOK)},
		"multiple_choices": {answer: status(http.StatusMultipleChoices)},
		"answer_to_a_post": {answer: status(http.StatusSeeOther), line: "POST /v1/x", fields: []string{"Content-Length: 0"}},
		"beside_a_link": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "<"+signedURL+">")
			redirect(signedURL)(w, r)
		}},
		"in_the_body_alone": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, signedURL)
		}},
	} {
		t.Run("EG-108_"+name, func(t *testing.T) {
			o.handle(t, c.answer)
			if c.line == "" {
				c.line = "GET /v1/x"
			}
			from := in.mark()
			re := to(bound, c.line, c.fields...)(in)
			in.hangUp()
			d, out := in.rec.last()
			if out.Code != enforcers.CodeAnswerCredential || d.Action.To().Host() != bound {
				t.Errorf("outcome %+v of %s", out, d.Action.To())
			}
			if re.status != 502 && re.err == nil || re.header.Get("Location") != "" || strings.Contains(fmt.Sprint(re.header, re.body), signature) {
				t.Errorf("client saw %d %v %q", re.status, re.header, re.body)
			}
			if n := len(o.requests(from.tally)); n != 1 {
				t.Errorf("%d requests outside", n)
			}
		})
	}
	t.Run("EG-76_credential_in_the_query", func(t *testing.T) {
		// What the connection's own credential stands in is no signed URL but a leak.
		o.handle(t, redirect("https://"+blob+"/objects/1?token="+canary))
		re := to(bound, "GET /v1/x")(in)
		in.hangUp()
		if _, out := in.rec.last(); out.Code != enforcers.CodeReflected || re.header.Get("Location") != "" || in.gate.Context().Err() == nil {
			t.Errorf("%+v, client saw %d %v", out, re.status, re.header)
		}
	})
}

// TestDoorURLAgain: EG-108. What a store redirects to becomes a door URL as
// well, three times, and what it redirects to in the open leads where it would
// have outside.
func TestDoorURLAgain(t *testing.T) {
	o := newOutside(t)
	in := open(t, o, setup{mode: receipts.Hard, policy: blobPolicy, inject: connections(t)})
	path := in.doorURL(t, signedURL)
	next := func(location string) reply {
		o.handle(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		return atDoor("GET " + path)(in)
	}
	for _, location := range []string{"/objects/1", "//" + blob + "/objects/1", "https://" + blob + "/objects//1", "https://" + blob + ":443/objects/1"} {
		if re := next(location); re.status != 307 || re.header.Get("Location") != "https://"+blob+"/objects/1" {
			t.Errorf("%s: %d %v", location, re.status, re.header)
		}
	}
	for _, location := range []string{"objects/1", "?" + signedQuery, "http://" + blob + "/objects/1", "https://93.184.216.34/x", "/objects/../1", "/objects/1#x"} {
		if re := next(location); re.status != 502 || re.header.Get("Location") != "" {
			t.Errorf("%s: %d %v", location, re.status, re.header)
		}
	}
	for i, location := range []string{"/objects/1?" + signedQuery, signedURL, "https://" + blob + "/objects/1?page=0123456789"} {
		re := next(location)
		if i == 2 {
			if _, out := in.rec.last(); re.status != 502 || out.Code != enforcers.CodeAnswerCredential {
				t.Errorf("the fourth redirect: %d %v", re.status, re.header)
			}
			break
		}
		path = in.led(t, re)
	}
	o.handle(t, store(""))
	if re := atDoor("GET " + path)(in); re.body != object {
		t.Errorf("at the end: %d %q", re.status, re.body)
	}
}

// TestDoorURLReflected: EG-108. A store that repeats the signature in what it
// says of an error does not bring it in, and the session goes on.
func TestDoorURLReflected(t *testing.T) {
	o := newOutside(t)
	in := open(t, o, setup{mode: receipts.Hard, policy: blobPolicy, inject: connections(t)})
	path := in.doorURL(t, signedURL)
	for name, text := range map[string]string{
		"plain": "<SignatureProvided>" + signature + "</SignatureProvided>", "whole": "you asked for ?" + signedQuery, "far_in": strings.Repeat("x", 50<<10) + signature,
	} {
		o.handle(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, text)
		})
		re := atDoor("GET " + path)(in)
		in.hangUp()
		if _, out := in.rec.last(); out.Code != enforcers.CodeAnswerCredential || strings.Contains(re.body, signature) || in.gate.Context().Err() != nil {
			t.Errorf("%s: %+v, client saw %q", name, out, re.body)
		}
	}
}

// TestDoorURLBounds: EG-108. Five minutes, 128 of them, one policy, one session.
func TestDoorURLBounds(t *testing.T) {
	o := newOutside(t)
	now := time.Now()
	var onClock func()
	in := open(t, o, setup{mode: receipts.Hard, policy: blobPolicy, inject: connections(t), clock: func() time.Time {
		if onClock != nil {
			onClock()
		}
		return now
	}})
	good := func(path string) bool { return atDoor("GET "+path)(in).status == http.StatusOK }
	first := in.doorURL(t, signedURL)
	now = now.Add(5*time.Minute - time.Nanosecond)
	for range 2 {
		if !good(first) {
			t.Error("it ended early")
		}
	}
	second := in.doorURL(t, signedURL)
	now = now.Add(time.Nanosecond)
	if re := atDoor("GET " + first)(in); re.status != 403 || !strings.Contains(re.body, enforcers.CodeDoorURL) {
		t.Errorf("after five minutes: %d %s", re.status, re.body)
	}
	if !good(second) {
		t.Error("another one ended with it")
	}
	c, r, _ := in.secure(bound+":443", bound)
	last := ""
	for range 127 {
		if _, err := io.WriteString(c, get(bound, "/v1/x")); err != nil {
			t.Fatal(err)
		}
		last = in.led(t, read(r, "GET"))
	}
	if !good(second) || !good(last) {
		t.Error("fewer than 128")
	}
	if third := in.doorURL(t, signedURL); good(second) || !good(third) || !good(last) {
		t.Error("the oldest does not make room")
	}

	// A change while it is being asked for: the name of a new host is counted
	// between the two.
	path := in.doorURL(t, "https://slash.good.test/a%2Fb?"+signedQuery)
	from := in.mark()
	calls := 0
	onClock = func() {
		if calls++; calls == 2 {
			in.gate.Swap(policyOf(t, blobPolicy))
		}
	}
	re := atDoor("GET " + path)(in)
	onClock = nil
	in.hangUp()
	w := allowed(403, "egress[21]").dialed(0).asked(0).ended(enforcers.CodeGeneration)
	in.expect(t, from, re, w)
	if good(last) {
		t.Error("one of the old policy is good under the new one")
	}
	path = in.doorURL(t, "https://slash.good.test/a%2Fb?"+signedQuery)
	if re := atDoor("GET " + path)(in); re.status != http.StatusOK {
		t.Errorf("under the new policy: %d %s", re.status, re.body)
	}
	in.hangUp()
	from = in.mark()
	in.gate.Revoke(enforcers.CodeRevoked)
	if re := atDoor("GET " + path)(in); re.status != 0 && (re.status != 403 || !strings.Contains(re.body, enforcers.CodeRevoked)) {
		t.Errorf("after the session's end: %d %s", re.status, re.body)
	}
	if n := len(o.requests(from.tally)); n != 0 {
		t.Errorf("%d requests after the session's end", n)
	}
}

// TestDoorURLCanary: EG-77, EG-108. The signature stands in nothing that the
// agent or a person can read.
func TestDoorURLCanary(t *testing.T) {
	o := newOutside(t)
	for _, mode := range modes {
		t.Run("EG-108_in_nothing_to_read/"+string(mode), func(t *testing.T) {
			var log, seen bytes.Buffer
			in := open(t, o, setup{mode: mode, policy: blobPolicy, inject: connections(t), log: slog.New(slog.NewTextHandler(&log, nil))})
			from := in.mark()
			see := func(re reply) { fmt.Fprintln(&seen, re.status, re.header, re.body, re.err) }
			path := in.doorURL(t, signedURL)
			for _, do := range []func(*inside) reply{
				to(bound, "GET /v1/x"), atDoor("GET " + path), atDoor("HEAD " + path), atDoor("POST " + path), atDoor("GET /url/x"),
				atDoor("GET " + in.doorURL(t, "https://cdn.test/x?"+signedQuery)),
			} {
				see(do(in))
			}
			o.handle(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			see(atDoor("GET " + path)(in))
			o.handle(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
			see(atDoor("GET " + path)(in))
			in.end()
			passed := 0
			for _, d := range in.rec.all() {
				b, err := d.Action.Canonical()
				stored, err2 := d.Action.Stored().Canonical()
				e, known := in.gate.Explain(d.Receipt)
				fmt.Fprintf(&seen, "%s %s %v %v %+v %+v %+v %#v\n", b, stored, err, err2, d.Decision, e, in.rec.outcomes[d.Receipt], d.Action)
				if d.Action.Signed != nil {
					fmt.Fprintf(&seen, "%+v %#v %v\n", *d.Action.Signed, *d.Action.Signed, d.Action.Signed.Query)
				}
				if known && d.Action.Signed != nil && d.Decision.Passed {
					passed++
				}
			}
			fmt.Fprintf(&seen, "%+v", in.gate.Refused(100))
			for _, r := range o.requests(from.tally) {
				if r.Host == blob && r.RequestURI != "/objects/1?"+signedQuery { // the second time it is sent as well
					t.Errorf("outside saw %s", r.RequestURI)
				}
			}
			seen.Write(log.Bytes())
			for _, form := range []string{signature, "AWS4-HMAC", "Expires=300"} {
				if strings.Contains(seen.String(), form) {
					t.Errorf("%s is there to be read", form)
				}
			}
			if passed < 4 || !strings.Contains(seen.String(), enforcers.CodeDoorURLUse) {
				t.Errorf("only %d passed:\n%s", passed, seen.String())
			}
		})
	}
}
