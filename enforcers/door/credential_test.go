package door_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

const (
	bound  = "bound.good.test"
	canary = "canary-d41d8cd98f00b204"
)

// boundPolicy gives the bound host a placeholder with three uses and another
// connection a placeholder of its own.
var boundPolicy = strings.Replace(strings.Replace(matrixPolicy,
	`"connection":"bound-main","host":"bound.good.test",`, `"connection":"bound-main","env":"BOUND_TOKEN","host":"bound.good.test",`, 1),
	`{"host":"plain.good.test"`, `{"connection":"other","env":"OTHER_TOKEN","host":"other.good.test","id":"egress[4b]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"],"uses":2},{"host":"plain.good.test"`, 1)

func connections(t testing.TB) *upstream.Connections {
	t.Helper()
	place := func(host string) authority.Authority {
		a, err := authority.New(authority.HTTPS, host, 443)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	value := func(context.Context) (secret.Value, error) { return secret.FromString(canary), nil }
	cs, err := upstream.NewConnections([]upstream.Credential{
		{Name: "bound-main", To: place(bound), Scheme: "bearer", Secret: value},
		{Name: "other", To: place("other.good.test"), Scheme: "query", Field: "key", Secret: value},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func withCredentials(t testing.TB, o *outside, mode receipts.Mode) *inside {
	return open(t, o, setup{mode: mode, policy: boundPolicy, inject: connections(t)})
}

func to(host, line string, fields ...string) func(*inside) reply {
	return func(in *inside) reply {
		text := line + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
		return in.https(host+":443", host, text)
	}
}

// post sends a body with its length.
func post(host, path, body string, fields ...string) func(*inside) reply {
	return func(in *inside) reply {
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s", path, host, len(body), strings.Join(append(fields, "\r\n"), "\r\n"))
		return in.https(host+":443", host, head+body)
	}
}

func chunkedPost(host, path string, chunks ...string) func(*inside) reply {
	return func(in *inside) reply {
		var b strings.Builder
		for _, c := range chunks {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
		}
		return in.https(host+":443", host, "POST "+path+" HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n"+b.String()+"0\r\n\r\n")
	}
}

// TestBypassMatrixCredentials: who gets the credential, who is refused, and that nothing
// but the bound host ever sees it. Each row runs in both modes and is closed in
// both.
func TestBypassMatrixCredentials(t *testing.T) {
	o := newOutside(t)
	type caseOf struct {
		do       func(in *inside, ph string) reply
		status   int
		code     string // of the decision or, after an allow, of the outcome
		injected int    // requests at the bound host with the credential, which are all that reach a fake
	}
	basic := func(user, password string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	wrap := func(f func(*inside) reply) func(*inside, string) reply {
		return func(in *inside, _ string) reply { return f(in) }
	}
	escape := func(s string, f func(byte) string) string {
		var b strings.Builder
		for i := range len(s) {
			b.WriteString(f(s[i]))
		}
		return b.String()
	}
	percent := func(c byte) string { return fmt.Sprintf("%%%02x", c) }
	unicode := func(c byte) string { return fmt.Sprintf(`\u%04x`, c) }
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, s)
		_ = z.Close()
		return b.String()
	}
	rows := map[string]caseOf{
		"without_anything":     {wrap(to(bound, "GET /v1/x")), 200, "", 1},
		"placeholder_bearer":   {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", "Authorization: Bearer "+ph)(in) }, 200, "", 1},
		"placeholder_token":    {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", "Authorization: token "+ph)(in) }, 200, "", 1},
		"placeholder_basic":    {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", basic("x", ph))(in) }, 200, "", 1},
		"placeholder_as_user":  {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", basic(ph, ""))(in) }, 200, "", 1},
		"placeholder_header":   {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", "X-Api-Key: "+ph)(in) }, 200, "", 1},
		"placeholder_in_query": {func(in *inside, ph string) reply { return to(bound, "GET /v1/x?a=b&access_token="+ph)(in) }, 200, "", 1},

		"EG-54_other_method":  {wrap(to(bound, "GET /v1/x", "X-HTTP-Method-Override: DELETE")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_second_method": {wrap(to(bound, "POST /v1/x", "Content-Length: 0", "X-HTTP-Method: POST", "X-Http-Method: PATCH")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_another_field": {wrap(to(bound, "GET /v1/x", "x-method-override: POST")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query":         {wrap(to(bound, "POST /v1/x?a=b&_method=delete", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query_escaped": {wrap(to(bound, "POST /v1/x?%5fm%65thod=DEL%45TE", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query_php":     {wrap(to(bound, "POST /v1/x?a;+.method=PUT", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query_second":  {wrap(to(bound, "POST /v1/x?_method=POST&_method=PATCH", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query_nul":     {wrap(to(bound, "POST /v1/x?_method%00a=DELETE", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query_name":    {wrap(to(bound, "POST /v1/x?_HttpMethod=PATCH", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"EG-54_query_field":   {wrap(to(bound, "POST /v1/x?X-HTTP-Method-Override=PATCH", "Content-Length: 0")), 403, enforcers.CodeMethodRefused, 0},
		"same_method_query":   {wrap(to(bound, "GET /v1/x?_method=get&method=DELETE&a_method=PUT&_method&_method=")), 200, "", 1},
		"same_method":         {wrap(to(bound, "GET /v1/x", "X-HTTP-Method-Override: get")), 200, "", 1},

		"EG-72_unbound_listed": {func(in *inside, ph string) reply {
			return to("files.pkg.test", "GET /x", "Authorization: Bearer "+ph)(in)
		}, 403, enforcers.CodePlaceholderHost, 0},
		"EG-72_unbound_unlisted": {func(in *inside, ph string) reply { return to("evil.test", "GET /x", "Authorization: Bearer "+ph)(in) }, 403, enforcers.CodePlaceholderHost, 0},
		"EG-72_other_connection": {func(in *inside, ph string) reply {
			return to("other.good.test", "GET /x", "Authorization: Bearer "+ph)(in)
		}, 403, enforcers.CodePlaceholderHost, 0},
		"EG-72_plain_http": {func(in *inside, ph string) reply {
			return in.raw("GET", "GET http://plain.good.test/ HTTP/1.1\r\nHost: plain.good.test\r\nAuthorization: Bearer "+ph+"\r\n\r\n")
		}, 403, enforcers.CodePlaceholderHost, 0},
		"EG-73_unknown":   {wrap(to(bound, "GET /v1/x", "Authorization: Bearer gatehouse_ph_AAAAAAAAAAAAAAAAAAAAAAAAAA")), 403, enforcers.CodePlaceholder, 0},
		"EG-73_cut_short": {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", "Authorization: Bearer "+ph[:20])(in) }, 403, enforcers.CodeForeignCredential, 0},
		"EG-73_other_session": {func(in *inside, _ string) reply {
			theirs := withCredentials(in.t, in.out, receipts.Hard).door.Environment()["BOUND_TOKEN"]
			return to(bound, "GET /v1/x", "Authorization: Bearer "+theirs)(in)
		}, 403, enforcers.CodePlaceholder, 0},
		"EG-74_path":          {func(in *inside, ph string) reply { return to(bound, "GET /v1/"+ph)(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_path_escaped":  {func(in *inside, ph string) reply { return to(bound, "GET /v1/"+escape(ph, percent))(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_query":         {func(in *inside, ph string) reply { return to(bound, "GET /v1/x?q="+ph)(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_query_escaped": {func(in *inside, ph string) reply { return to(bound, "GET /v1/x?q="+escape(ph, percent))(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_other_header":  {func(in *inside, ph string) reply { return to(bound, "GET /v1/x", "User-Agent: "+ph)(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_header_base64": {func(in *inside, ph string) reply {
			return to(bound, "GET /v1/x", "X: "+base64.StdEncoding.EncodeToString([]byte("ab"+ph)))(in)
		}, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_body":             {func(in *inside, ph string) reply { return post(bound, "/v1/x", `{"t":"`+ph+`"}`)(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_body_json_escape": {func(in *inside, ph string) reply { return post(bound, "/v1/x", escape(ph, unicode))(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_body_percent":     {func(in *inside, ph string) reply { return post(bound, "/v1/x", "t="+escape(ph, percent))(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_body_base64": {func(in *inside, ph string) reply {
			return post(bound, "/v1/x", base64.StdEncoding.EncodeToString([]byte("x:"+ph)))(in)
		}, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_body_gzip":         {func(in *inside, ph string) reply { return post(bound, "/v1/x", zip(ph), "Content-Encoding: gzip")(in) }, 403, enforcers.CodePlaceholderPlace, 0},
		"EG-74_body_encoding":     {wrap(post(bound, "/v1/x", "abcd", "Content-Encoding: br")), 403, enforcers.CodeBodyNotInspected, 0},
		"EG-74_unbound_body":      {func(in *inside, ph string) reply { return post(good, "/v1/x", ph)(in) }, 403, enforcers.CodePlaceholderHost, 0},
		"EG-74_unbound_body_gzip": {func(in *inside, ph string) reply { return post(good, "/v1/x", zip(ph), "Content-Encoding: gzip")(in) }, 403, enforcers.CodePlaceholderHost, 0},

		"EG-75_bearer":     {wrap(to(bound, "GET /v1/x", "Authorization: Bearer ghp_mine")), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_basic":      {wrap(to(bound, "GET /v1/x", basic("me", "mine"))), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_cookie":     {wrap(to(bound, "GET /v1/x", "Cookie: session=mine")), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_api_key":    {wrap(to(bound, "GET /v1/x", "X-Api-Key: mine")), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_query":      {wrap(to(bound, "GET /v1/x?access_token=mine")), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_query_case": {wrap(to(bound, "GET /v1/x?Access%5FToken=mine")), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_signed":     {wrap(to(bound, "GET /v1/x?X-Amz-Signature=mine")), 403, enforcers.CodeForeignCredential, 0},
		"EG-75_beside_ours": {func(in *inside, ph string) reply {
			return to(bound, "GET /v1/x", "Authorization: Bearer "+ph, "X-Api-Key: mine")(in)
		}, 403, enforcers.CodeForeignCredential, 0},
		"EG-104_denied": {wrap(to(bound, "PUT /repos/org/repo/actions/secrets")), 403, "method_not_listed", 0},
	}
	for name, c := range rows {
		for _, mode := range modes {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				in := withCredentials(t, o, mode)
				from := in.mark()
				ph := in.door.Environment()["BOUND_TOKEN"]
				re := c.do(in, ph)
				in.end()
				w := denied(c.status, c.code)
				switch {
				case c.injected > 0:
					w = allowed(c.status, "egress[4]")
					w.secrets = c.injected
				case strings.Contains(name, "_body"):
					// What stands in a body is found after the decision, before anything is dialed.
					w = stopped(c.status, c.code).at("egress[4]").asked(0)
					if strings.Contains(name, "unbound") {
						w.rule = "egress[0]"
					}
				case name == "EG-72_unbound_unlisted" && mode == receipts.Hard:
					w = denied(c.status, "host_not_listed")
				case c.code == "method_not_listed" && mode == receipts.Shadow:
					w.code = enforcers.CodeNeedsAuthority
				}
				in.expect(t, from, re, w)
				in.covered(t)
				for i, r := range o.requests(from.tally) {
					text := fmt.Sprint(r.Header, r.RequestURI, o.bodiesSince(from.tally)[i])
					if strings.Contains(text, "gatehouse_ph_") || strings.Contains(text, "mine") {
						t.Errorf("outside saw %s", text)
					}
					if strings.Contains(text, canary) && (r.Host != bound || r.TLS == nil) {
						t.Errorf("the credential went to %s", r.Host)
					}
				}
			})
		}
	}
}

// TestPlaceholderUses: EG-73, a placeholder that may be used twice, and one
// whose rule is gone.
func TestPlaceholderUses(t *testing.T) {
	o := newOutside(t)
	in := withCredentials(t, o, receipts.Hard)
	o.handle(t, func(http.ResponseWriter, *http.Request) {}) // the usual answer repeats the query
	ph := in.door.Environment()["OTHER_TOKEN"]
	for i, want := range []int{200, 200, 403, 403} {
		if re := to("other.good.test", "GET /x?token="+url.QueryEscape(ph))(in); re.status != want {
			t.Errorf("use %d: %d %s", i, re.status, re.body)
		}
	}
	if re := to(bound, "GET /v1/x", "Authorization: Bearer "+in.door.Environment()["BOUND_TOKEN"])(in); re.status != 200 {
		t.Errorf("%d %s", re.status, re.body)
	}
	in.gate.Swap(policyOf(t, strings.Replace(boundPolicy, `"env":"BOUND_TOKEN",`, "", 1)))
	if re := to(bound, "GET /v1/x", "Authorization: Bearer "+in.door.Environment()["BOUND_TOKEN"])(in); re.status != 403 || !strings.Contains(re.body, enforcers.CodePlaceholder) {
		t.Errorf("after its rule is gone: %d %s", re.status, re.body)
	}
}

// TestPlaceholderInStream: EG-74, a body too long to wait for is looked
// through as it passes, and the request fails.
func TestPlaceholderInStream(t *testing.T) {
	o := newOutside(t)
	in := withCredentials(t, o, receipts.Hard)
	ph := in.door.Environment()["BOUND_TOKEN"]
	for name, do := range map[string]func(*inside) reply{
		"split_across_chunks": chunkedPost(bound, "/v1/x", "before ", ph[:5], ph[5:9], ph[9:], " after"),
		"byte_by_byte":        chunkedPost(bound, "/v1/x", strings.Split(ph, "")...),
		"unbound":             chunkedPost(good, "/v1/x", ph[:9], ph[9:]),
		"long":                post(bound, "/v1/x", strings.Repeat("x", 70<<10)+ph),
	} {
		t.Run(name, func(t *testing.T) {
			before := o.tally()
			if re := do(in); re.status != 403 || !strings.Contains(re.body, "placeholder_") {
				t.Errorf("client saw %d %s %v", re.status, re.body, re.err)
			}
			for i := range o.requests(before) {
				if strings.Contains(o.bodiesSince(before)[i], ph) {
					t.Error("the placeholder passed")
				}
			}
		})
	}
	if re := post(bound, "/v1/x", strings.Repeat("x", 70<<10), "Content-Encoding: gzip")(in); re.status != 403 || !strings.Contains(re.body, enforcers.CodeBodyNotInspected) {
		t.Errorf("a long encoded body: %d %s", re.status, re.body)
	}
}

// TestBypassMatrixAnswers: what comes back from a bound host.
func TestBypassMatrixAnswers(t *testing.T) {
	o := newOutside(t)
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		status  int
		code    string // of the outcome
		revoked bool
	}{
		"EG-76_echo_body":   {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header) }, 0, enforcers.CodeReflected, true},
		"EG-76_echo_header": {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", r.Header.Get("Authorization")) }, 403, enforcers.CodeReflected, true},
		"EG-76_echo_base64": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization"))))
		}, 0, enforcers.CodeReflected, true},
		"EG-76_error_page": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "bad "+r.Header.Get("Authorization"), http.StatusInternalServerError)
		}, 0, enforcers.CodeReflected, true},
		"EG-78_token": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"token":"ghs_0123456789"}`)
		}, 0, enforcers.CodeAnswerCredential, false},
		"EG-108_signed": {func(w http.ResponseWriter, r *http.Request) { // a door URL stands in its place
			http.Redirect(w, r, "https://cdn.test/x?X-Amz-Signature=0123456789", http.StatusFound)
		}, 302, "", false},
		"EG-108_signed_link": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "<https://cdn.test/x?X-Amz-Signature=0123456789>")
		}, 502, enforcers.CodeAnswerCredential, false},
		"EG-108_html": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, `<img src="https://cdn.test/x?jwt=0123456789">`)
		}, 0, enforcers.CodeAnswerCredential, false},
		"EG-59_query": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/x?a=b", http.StatusFound)
		}, 502, enforcers.CodeAnswerCredential, false},
		"EG-105_ranges":       {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "whole") }, 200, "", false},
		"cookies_are_removed": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "a=b") }, 200, "", false},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				in := withCredentials(t, o, mode)
				o.handle(t, c.answer)
				from := in.mark()
				re := to(bound, "GET /v1/x", "Range: bytes=0-9", "If-Range: x", "Accept-Encoding: br")(in)
				in.hangUp()
				w := allowed(c.status, "egress[4]").ended(c.code)
				w.secrets = 1
				// A session that ends may take its last answer with it, and an answer
				// that breaks off may do so before its status.
				if re.err != nil || c.revoked && re.status == http.StatusForbidden {
					w.status = re.status
				}
				in.expect(t, from, re, w)
				in.covered(t)
				all := fmt.Sprint(re.header, re.body, re.err)
				if strings.Contains(all, canary) || strings.Contains(all, "ghs_") || strings.Contains(all, "0123456789") || re.header.Get("Set-Cookie") != "" {
					t.Errorf("it came in: %s", all)
				}
				sent := o.requests(from.tally)[0].Header
				if sent.Get("Range") != "" || sent.Get("If-Range") != "" || sent.Get("Accept-Encoding") != "identity" { // EG-105
					t.Errorf("outside saw %v", sent)
				}
				if ended := in.gate.Context().Err() != nil; ended != c.revoked {
					t.Errorf("session ended: %t", ended)
				}
			})
		}
	}
}

// TestBypassMatrixCanary: EG-77. After everything above has happened in one session, the
// credential stands in nothing that a person or the agent can read.
func TestBypassMatrixCanary(t *testing.T) {
	o := newOutside(t)
	for _, mode := range modes {
		t.Run("EG-77_in_nothing_to_read/"+string(mode), func(t *testing.T) {
			var log bytes.Buffer
			in := open(t, o, setup{mode: mode, policy: boundPolicy, inject: connections(t), log: slog.New(slog.NewTextHandler(&log, nil))})
			var seen strings.Builder
			step := func(do func(*inside) reply, w want) {
				t.Helper()
				from := in.mark()
				re := do(in)
				fmt.Fprintln(&seen, re.status, re.header, re.body, re.err)
				if w.status == 0 { // an answer that breaks off, before or after its status
					w.status = re.status
				}
				in.expect(t, from, re, w)
			}
			ph := in.door.Environment()["BOUND_TOKEN"]
			with := allowed(200, "egress[4]")
			with.secrets = 1
			step(to(bound, "GET /v1/x"), with)
			step(to(bound, "GET /v1/x", "Authorization: Bearer "+ph), with.kept())
			no := denied(403, "method_not_listed")
			if mode == receipts.Shadow {
				no.code = enforcers.CodeNeedsAuthority
			}
			step(to(bound, "PUT /v1/x"), no)
			step(to(bound, "GET /v1/x", "Authorization: Bearer mine"), denied(403, enforcers.CodeForeignCredential))
			o.handle(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			// It broke off on the kept connection without a word, so it was sent again.
			broken := with.ended(enforcers.CodeProtocol)
			broken.status, broken.secrets = 502, 2
			step(to(bound, "GET /v1/x"), broken)
			o.handle(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header) })
			echo := with.ended(enforcers.CodeReflected)
			echo.status = 0
			step(to(bound, "GET /v1/x"), echo)
			in.end()
			fmt.Fprintf(&seen, "%v", in.door.Environment())
			for _, d := range in.rec.all() {
				b, err := d.Action.Canonical()
				fmt.Fprintf(&seen, "%s %v %+v %+v\n", b, err, d.Decision, in.rec.outcomes[d.Receipt])
			}
			seen.Write(log.Bytes())
			if n := strings.Count(seen.String(), canary); n > 0 {
				t.Errorf("%d copies", n)
			}
			if !regexp.MustCompile(`credential_reflected`).MatchString(seen.String()) {
				t.Error("the echo went unnoticed")
			}
		})
	}
}
