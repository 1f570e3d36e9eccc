package upstream_test

import (
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// TestSigned: EG-108. A signed query is sent where it was permitted to, over
// verified TLS, to read, and nowhere else.
func TestSigned(t *testing.T) {
	o := newOutside(t)
	o.http2(t)
	c := newClient(t, o, nil)
	const query = "X-Amz-Signature=0123456789abcdef"
	for name, b := range map[string]struct {
		url, method, query, also string
		grant                    enforcers.Grant
		code                     string
	}{
		"read":                     {url: "https://example.com/x", also: query},
		"head":                     {url: "https://example.com/x", also: query, method: "HEAD"},
		"EG-66_cleartext":          {url: "http://example.com/x", also: query, code: enforcers.CodeCredential},
		"EG-108_post":              {url: "https://example.com/x", also: query, method: "POST", code: enforcers.CodeDoorURLUse},
		"EG-108_own_query":         {url: "https://example.com/x", also: query, query: "a=b", code: enforcers.CodePermit},
		"EG-108_connection":        {url: "https://example.com/x", also: query, grant: enforcers.Grant{Connection: "main"}, code: enforcers.CodeCredential},
		"EG-108_unguarded":         {url: "https://example.com/x", also: "a=b", code: enforcers.CodeCredential},
		"EG-108_many":              {url: "https://example.com/x", also: manyParts(), code: enforcers.CodeCredential},
		"EG-108_nothing":           {url: "https://example.com/x", also: "", code: enforcers.CodeCredential},
		"read_http2":               {url: "https://example.com:8443/x", also: query},
		"EG-108_not_one_url_http2": {url: "https://example.com:8443/x", also: query + " HTTP/1.1", code: enforcers.CodeProtocol},
		"EG-108_not_one_url":       {url: "https://example.com/x", also: query + " HTTP/1.1", code: enforcers.CodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession("s-"+name, receipts.Hard, enforcers.Allow, b.grant)
			scheme, rest, _ := strings.Cut(b.url, "://")
			host, path, _ := strings.Cut(rest, "/")
			to, err := authority.ParseHostHeader(scheme, host)
			if err != nil {
				t.Fatal(err)
			}
			if b.method == "" {
				b.method = http.MethodGet
			}
			a := s.gate.Action(enforcers.HTTPRequest)
			a.HTTP = &enforcers.HTTP{To: to, Method: b.method, Path: "/" + path, Query: b.query, Body: enforcers.Body{Mode: "none"}}
			a.Signed = &enforcers.Signed{Query: secret.FromString(b.also), By: "main"}
			p, d := s.gate.Decide(t.Context(), a)
			if p == nil {
				t.Fatalf("%+v", d)
			}
			o.mu.Lock()
			before := len(o.seen)
			o.mu.Unlock()
			r, err := http.NewRequestWithContext(t.Context(), b.method, "https://wherever.test/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(p, r)
			if err == nil {
				_ = resp.Body.Close()
			}
			code := ""
			if err != nil {
				code = string(problem.CodeOf(err))
			}
			o.mu.Lock()
			seen := o.seen[before:]
			o.mu.Unlock()
			if b.code != "" {
				if code != b.code || len(seen) != 0 || s.log.outcome(t).Effect != enforcers.NotForwarded {
					t.Errorf("%q, %d requests outside", code, len(seen))
				}
				return
			}
			if code != "" || len(seen) != 1 || seen[0].RequestURI != "/x?"+query {
				t.Errorf("%q, outside saw %d", code, len(seen))
			}
		})
	}
}

// manyParts is a query of more signatures than one answer is searched for.
func manyParts() string {
	var b strings.Builder
	for i := range 20 {
		b.WriteString("&sig=0123456789" + string(rune('a'+i)))
	}
	return b.String()[1:]
}

// TestSignedActions: EG-104. What is judged beside a signed query.
func TestSignedActions(t *testing.T) {
	to, err := authority.New(authority.HTTPS, "example.com", 443)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		effect     enforcers.Effect
		connection string
		code       string
	}{
		"EG-104_denied_in_shadow":    {enforcers.Deny, "", enforcers.CodeNeedsAuthority},
		"EG-104_abstained_in_shadow": {enforcers.Abstain, "", enforcers.CodeNeedsAuthority},
		"two_credentials":            {enforcers.Allow, "main", enforcers.CodeMalformedAction},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession("s", receipts.Shadow, c.effect, enforcers.Grant{})
			a := s.gate.Action(enforcers.HTTPRequest)
			a.Connection = c.connection
			a.HTTP = &enforcers.HTTP{To: to, Method: "GET", Path: "/", Body: enforcers.Body{Mode: "none"}}
			a.Signed = &enforcers.Signed{Query: secret.FromString("sig=0123456789"), By: "main"}
			if p, d := s.gate.Decide(t.Context(), a); p != nil || d.Passed || d.Reason != c.code {
				t.Errorf("%+v", d)
			}
		})
	}
}
