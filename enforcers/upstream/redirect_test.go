package upstream

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// TestSignature: EG-108. What of a signed URL must not come back.
func TestSignature(t *testing.T) {
	for query, want := range map[string][]string{
		"":        nil,
		"a=b":     nil,
		"a=bcdef": nil, // one byte short
		"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=0123456789":                {"0123456789"},
		"X-Amz-Security-Token=ab%2Fb%2Fc%2Fd&X-Amz-Signature=0123456789":             {"ab%2Fb%2Fc%2Fd", "ab/b/c/d", "0123456789"},
		"x%2Damz%2Dsignature=0123456789":                                             {"0123456789"},
		"se=2030-01-01T00:00:00Z&sp=r&SIG=0123456789&rscd=attachment%3Bfilename%3Dx": {"0123456789"},
		"Policy=0123456789_;Key-Pair-Id=K0123456789;Signature=abcdefghijk":           {"0123456789_", "K0123456789", "abcdefghijk"},
		"verify=1690000000-abcdefg&response-content-type=application/octet-stream":   {"1690000000-abcdefg"},
		"page=2&per_page=100":                   {},
		"token=short&verify=1690000000-abcdefg": {"1690000000-abcdefg"},
		"dGhlIHdob2xlIGlzIHRoZSBzaWduYXR1cmU=":  {},
	} {
		var got []string
		for _, v := range signature(secret.FromString(query)) {
			got = append(got, string(v.Reveal()))
		}
		if want != nil {
			want = append([]string{query}, want...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// TestKeeper: EG-108. Which redirects are asked about, and what is left of the
// answer.
func TestKeeper(t *testing.T) {
	const signed = "https://cdn.test/x?sig=0123456789"
	for name, c := range map[string]struct {
		status   int
		location string
		signed   bool // the request was sent with a signed URL
		answer   string
		ok       bool
		asked    bool
		secret   bool
		code     string
	}{
		"signed":                    {302, signed, false, "https://door.test/1", true, true, true, ""},
		"kept_nowhere":              {302, signed, false, "", false, true, true, enforcers.CodeAnswerCredential},
		"elsewhere":                 {307, "https://cdn.test/x?page=0123456789", false, "https://door.test/1", true, true, true, ""},
		"open":                      {301, "https://cdn.test/x", false, "https://cdn.test/x", true, true, false, ""},
		"open_but_nowhere":          {301, "https://cdn.test/x", false, "", false, true, false, enforcers.CodeAnswerCredential},
		"own_query":                 {308, "/x?page=2", false, "/x?page=2", true, true, false, ""},
		"given_back":                {303, signed, false, signed, true, true, true, enforcers.CodeAnswerCredential},
		"another_signed":            {303, signed, false, "https://other.test/?sig=0123456789", true, true, true, enforcers.CodeAnswerCredential},
		"another_query":             {303, signed, false, "https://other.test/?page=2", true, true, true, enforcers.CodeAnswerCredential},
		"not_modified":              {304, signed, false, "https://door.test/1", true, false, false, enforcers.CodeAnswerCredential},
		"created":                   {201, signed, false, "https://door.test/1", true, false, false, enforcers.CodeAnswerCredential},
		"EG-76_query":               {302, "https://cdn.test/x?k=" + canary, false, "https://door.test/1", true, false, false, enforcers.CodeReflected},
		"EG-76_path":                {302, "https://cdn.test/" + canary + "?k=0123456789", false, "https://door.test/1", true, false, false, enforcers.CodeReflected},
		"EG-76_path_escaped":        {302, "https://cdn.test/" + strings.Replace(canary, "n", "%6e", 1) + "?k=0123456789", false, "https://door.test/1", true, false, false, enforcers.CodeReflected},
		"EG-76_query_escaped":       {302, "https://cdn.test/x?k=" + strings.Replace(canary, "n", "%6e", 1), false, "https://door.test/1", true, false, false, enforcers.CodeReflected},
		"EG-76_host":                {302, "https://" + canary + ".cdn.test/", false, "https://door.test/1", true, false, false, enforcers.CodeReflected},
		"signed_path":               {302, "https://cdn.test/x;sig=0123456789?a=b", false, "https://door.test/1", true, false, false, enforcers.CodeAnswerCredential},
		"signed_again":              {307, "https://cdn.test/x?sig=" + canary, true, "https://door.test/1", true, true, true, ""},
		"signed_again_path_escaped": {307, "https://cdn.test/" + strings.Replace(canary, "n", "%6E", 1) + "?k=0123456789", true, "https://door.test/1", true, false, false, enforcers.CodeAnswerCredential},
		"signed_again_path":         {307, "https://cdn.test/" + canary, true, "https://door.test/1", true, false, false, enforcers.CodeAnswerCredential},
	} {
		t.Run("EG-108_"+name, func(t *testing.T) {
			asked := false
			keep := Keeper(func(location string, secret bool) (string, bool) {
				asked = true
				if location != c.location || secret != c.secret {
					t.Errorf("asked about %q, secret %t", location, secret)
				}
				return c.answer, c.ok
			})
			resp := answerOf(http.Header{"Location": {c.location}, "Content-Type": {"text/html"}, "X": {"y"}}, `see <a href="`+c.location+`">`)
			resp.StatusCode = c.status
			wire := newTripwire(watching())
			wire.signed = c.signed
			body, err := guardAnswer(resp, place(t), wire, true, keep)
			code := ""
			if err != nil {
				code = string(problem.CodeOf(err))
			}
			if code != c.code || asked != c.asked {
				t.Fatalf("%q, asked %t: %v", code, asked, err)
			}
			if err != nil {
				return
			}
			n, _ := body.Read(make([]byte, 1))
			if got := resp.Header.Get("Location"); got != c.answer || (got != c.location) != (n == 0) || (n == 0) != (resp.Header.Get("Content-Type") == "") || resp.Header.Get("X") != "y" {
				t.Errorf("%d bytes behind %v", n, resp.Header)
			}
			if c.answer != c.location && (resp.ContentLength != 0 || resp.Header.Get("Content-Length") != "0" || resp.Header.Get("Cache-Control") != "no-store") {
				t.Errorf("%d %v", resp.ContentLength, resp.Header)
			}
		})
	}
	t.Run("EG-108_nobody_to_ask", func(t *testing.T) {
		resp := answerOf(http.Header{"Location": {signed}}, "")
		resp.StatusCode = http.StatusFound
		if _, err := guardAnswer(resp, place(t), newTripwire(watching()), true, nil); string(problem.CodeOf(err)) != enforcers.CodeAnswerCredential {
			t.Error(err)
		}
	})
	const unknown = "https://cdn.test/x?verify=1690000000-abcdefghij"
	for name, h := range map[string]http.Header{
		"refresh": {"Refresh": {"0; url=" + unknown}}, "link": {"Link": {"<" + unknown + ">; rel=canonical"}},
		"value": {"X-Verify": {"1690000000-abcdefghij"}}, "escaped": {"X-From": {"/?to=https%3a%2f%2fcdn.test%2fx%3fverify%3d1690000000-abcdefghij"}},
	} {
		t.Run("EG-108_beside_it_"+name, func(t *testing.T) {
			h["Location"] = []string{unknown}
			resp := answerOf(h, "")
			resp.StatusCode = http.StatusFound
			_, err := guardAnswer(resp, place(t), newTripwire(watching()), true, func(string, bool) (string, bool) { return "https://door.test/1", true })
			if string(problem.CodeOf(err)) != enforcers.CodeAnswerCredential {
				t.Errorf("%v %v", err, resp.Header)
			}
		})
	}
	t.Run("EG-108_two", func(t *testing.T) {
		resp := answerOf(http.Header{"Location": {"https://cdn.test/x", signed}}, "")
		resp.StatusCode = http.StatusFound
		keep := Keeper(func(string, bool) (string, bool) { t.Error("asked"); return "https://door.test/1", true })
		if _, err := guardAnswer(resp, place(t), newTripwire(watching()), true, keep); string(problem.CodeOf(err)) != enforcers.CodeAnswerCredential {
			t.Error(err)
		}
	})
	t.Run("EG-108_long_body_is_not_waited_for", func(t *testing.T) {
		resp := answerOf(http.Header{"Location": {signed}}, strings.Repeat("x", shortBody+1))
		resp.StatusCode = http.StatusFound
		src := &counter{ReadCloser: resp.Body}
		resp.Body = src
		if _, err := guardAnswer(resp, place(t), newTripwire(watching()), true, func(string, bool) (string, bool) { return "https://door.test/1", true }); err != nil || src.reads != 0 || !src.closed {
			t.Errorf("%v %+v", err, src)
		}
	})
}

type counter struct {
	ReadCloser interface {
		Read([]byte) (int, error)
		Close() error
	}
	reads  int
	closed bool
}

func (c *counter) Read(p []byte) (int, error) { c.reads++; return c.ReadCloser.Read(p) }
func (c *counter) Close() error               { c.closed = true; return c.ReadCloser.Close() }
