package upstream

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

const canary = "canary-7f3a/+b9=secret"

func watching() []secret.Value { return []secret.Value{secret.FromString(canary)} }

func place(t testing.TB) authority.Authority {
	t.Helper()
	a, err := authority.New(authority.HTTPS, "bound.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func answerOf(header http.Header, body string) *http.Response {
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// TestTripwire: EG-76, EG-77. A secret that comes back in any of its usual
// encodings, whole or split across reads, never reaches the reader.
func TestTripwire(t *testing.T) {
	var percent, lower strings.Builder
	for _, c := range []byte(canary) {
		percent.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		lower.WriteString("%" + hex.EncodeToString([]byte{c}))
	}
	forms := map[string]string{
		"plain": canary, "hex": hex.EncodeToString([]byte(canary)), "hex_upper": strings.ToUpper(hex.EncodeToString([]byte(canary))),
		"query": url.QueryEscape(canary), "path": url.PathEscape(canary), "percent": percent.String(), "percent_lower": lower.String(),
		"bearer": "Bearer " + canary, "base64": base64.StdEncoding.EncodeToString([]byte(canary)), "base64_url": base64.URLEncoding.EncodeToString([]byte(canary)),
		"base64_raw": base64.RawURLEncoding.EncodeToString([]byte(canary)),
	}
	for _, user := range []string{"u", "uu", "uuu", "x-access-token"} {
		forms["basic_"+user] = base64.StdEncoding.EncodeToString([]byte(user + ":" + canary))
		forms["basic_"+user+"_more"] = base64.URLEncoding.EncodeToString([]byte(user + ":" + canary + "\nmore"))
	}
	for name, form := range forms {
		for kind, read := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte_by_byte": iotest.OneByteReader, "halves": iotest.HalfReader, "with_end": iotest.DataErrReader,
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				text := strings.Repeat("before ", 3000) + form + " after"
				g := &guarded{ReadCloser: io.NopCloser(read(strings.NewReader(text))), t: newTripwire(watching()), of: narrow}
				got, err := io.ReadAll(g)
				if string(problem.CodeOf(err)) != enforcers.CodeReflected {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
				begins := len(text)
				for _, p := range g.t.patterns {
					if i := strings.Index(text, string(p)); i >= 0 {
						begins = min(begins, i)
					}
				}
				if len(got) > begins {
					t.Errorf("%d bytes passed, the secret begins at %d", len(got), begins)
				}
			})
		}
	}
}

// TestTripwireEscapes: EG-76, EG-108. What pages and programs make of a text that
// has more than letters in it, as a signed URL's query has.
func TestTripwireEscapes(t *testing.T) {
	const query = "a=b&verify=<ab/cd+ef>=='x'"
	wire := newTripwire([]secret.Value{secret.FromString(query)})
	for name, form := range map[string]string{
		"html": "a=b&amp;verify=&lt;ab/cd+ef&gt;==&#39;x&#39;", "json": `a=b\u0026verify=\u003cab/cd+ef\u003e=='x'`, "json_slashes": `a=b&verify=<ab\/cd+ef>=='x'`,
		"lower": "a%3db%26verify%3d%3cab%2fcd%2bef%3e%3d%3d%27x%27",
	} {
		if !wire.holds([]byte("you asked for " + form + " here")) {
			t.Errorf("%s: %s passed", name, form)
		}
	}
}

// TestTripwirePasses: what holds no secret passes unchanged however it is cut.
func TestTripwirePasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks := rapid.SliceOf(rapid.SampledFrom([]string{"x", "canary", "canary-7f3a/+b9=secre", "7f3a", "data: y\n\n", base64.StdEncoding.EncodeToString([]byte("canary-7f3a")), "\x00"})).Draw(t, "chunks")
		var readers []io.Reader
		var all strings.Builder
		for _, c := range chunks {
			readers = append(readers, strings.NewReader(c))
			all.WriteString(c)
		}
		if strings.Contains(all.String(), canary) {
			t.Skip("holds the secret")
		}
		g := &guarded{ReadCloser: io.NopCloser(io.MultiReader(readers...)), t: newTripwire(watching()), of: narrow}
		got, err := io.ReadAll(g)
		if err != nil || string(got) != all.String() {
			t.Fatalf("%q became %q, %v", all.String(), got, err)
		}
	})
}

// TestTripwireDoesNotDelay: an event that cannot begin a secret is passed on
// with the read that brought it.
func TestTripwireDoesNotDelay(t *testing.T) {
	r, w := io.Pipe()
	g := &guarded{ReadCloser: r, t: newTripwire(watching()), of: narrow}
	go func() {
		_, _ = io.WriteString(w, "data: x\n\n")
	}()
	b := make([]byte, 100)
	n, err := g.Read(b)
	if err != nil || string(b[:n]) != "data: x\n\n" {
		t.Errorf("%q %v", b[:n], err)
	}
}

// TestGuardAnswer: what of an answer enters the sandbox.
func TestGuardAnswer(t *testing.T) {
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, s)
		_ = z.Close()
		return b.String()
	}
	long := strings.Repeat(" ", 40<<10)
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   string
		code   string
	}{
		"plain":                      {http.Header{"Content-Type": {"text/plain"}}, "hello", "hello", ""},
		"json":                       {http.Header{"Content-Type": {"application/json; charset=utf-8"}}, `{"name":"x","tokens":3,"token":null,"url":"https://bound.good.test/x?page=2"}`, `{"name":"x","tokens":3,"token":null,"url":"https://bound.good.test/x?page=2"}`, ""},
		"gzip":                       {http.Header{"Content-Encoding": {"gzip"}}, zip("hello"), "hello", ""},
		"EG-76_header":               {http.Header{"X-Echo": {"Bearer " + canary}}, "", "", enforcers.CodeReflected},
		"EG-76_gzip":                 {http.Header{"Content-Encoding": {"gzip"}}, zip("x" + canary), "", enforcers.CodeReflected},
		"EG-76_location":             {http.Header{"Location": {"/x?t=" + url.QueryEscape(canary)}}, "", "", enforcers.CodeReflected},
		"EG-76_brotli":               {http.Header{"Content-Encoding": {"br"}}, "x", "", enforcers.CodeAnswerEncoding},
		"EG-76_two_encodings":        {http.Header{"Content-Encoding": {"gzip, gzip"}}, "x", "", enforcers.CodeAnswerEncoding},
		"EG-76_second_encoding":      {http.Header{"Content-Encoding": {"identity", "br"}}, "x", "", enforcers.CodeAnswerEncoding},
		"EG-76_after_no_encoding":    {http.Header{"Content-Encoding": {"", "gzip"}}, "x", "", enforcers.CodeAnswerEncoding},
		"EG-76_header_half_escaped":  {http.Header{"Location": {"/" + strings.Replace(canary, "n", "%6e", 1)}}, "", "", enforcers.CodeReflected},
		"EG-76_header_lower_escapes": {http.Header{"X-Echo": {strings.ToLower(url.QueryEscape(canary))}}, "", "", enforcers.CodeReflected},
		"EG-76_broken_gzip":          {http.Header{"Content-Encoding": {"gzip"}}, "x", "", enforcers.CodeAnswerEncoding},
		"EG-78_oauth":                {http.Header{"Content-Type": {"application/json"}}, `{"access_token":"ghs_0123456789","expires_in":3600}`, "", enforcers.CodeAnswerCredential},
		"EG-78_installation":         {http.Header{"Content-Type": {"application/vnd.github+json"}}, `{ "token" : "ghs_0123456789" }`, "", enforcers.CodeAnswerCredential},
		"EG-78_far_in":               {http.Header{"Content-Type": {"application/json"}}, `{"x":"` + long + `","refresh_token":"0123456789"}`, "", enforcers.CodeAnswerCredential},
		"EG-78_second_type":          {http.Header{"Content-Type": {"application/octet-stream", "application/json"}}, `{"access_token":"ghs_0123456789"}`, "", enforcers.CodeAnswerCredential},
		"EG-78_not_json":             {http.Header{"Content-Type": {"application/octet-stream"}}, `{"access_token":"ghs_0123456789"}`, `{"access_token":"ghs_0123456789"}`, ""},
		"EG-108_field":               {http.Header{"Content-Type": {"application/json"}}, `{"archive_url":"https://cdn.test/x?X-Amz-Signature=0123456789abcdef"}`, "", enforcers.CodeAnswerCredential},
		"EG-108_field_escaped":       {http.Header{"Content-Type": {"application/json"}}, `{"u":"https:\/\/cdn.test\/x?a=b\u0026X-Goog-Signature=0123456789abcdef"}`, "", enforcers.CodeAnswerCredential},
		"EG-108_jwt":                 {http.Header{"Content-Type": {"application/json; charset=utf-8"}}, `{"data":{"issue":{"bodyHTML":"<img src=\"https://private-user-images.test/1/2-3.png?jwt=0123456789.eyJrZXkiOiJrIn0.c2ln\">"}}}`, "", enforcers.CodeAnswerCredential},
		"EG-108_policy":              {http.Header{"Content-Type": {"application/json"}}, `{"u":"https://d1.cdn.test/x?Policy=0123456789_"}`, "", enforcers.CodeAnswerCredential},
		"EG-108_key_pair":            {http.Header{"Content-Type": {"application/json"}}, `{"u":"https://d1.cdn.test/x?a=b\u0026Key-Pair-Id=K0123456789"}`, "", enforcers.CodeAnswerCredential},
		"EG-108_html":                {http.Header{"Content-Type": {"text/html; charset=utf-8"}}, `<img src="https://cdn.test/x?a=b&amp;jwt=0123456789">`, "", enforcers.CodeAnswerCredential},
		"EG-108_html_entities":       {http.Header{"Content-Type": {"text/html"}}, `<a href='https://cdn.test/x?Signature&#61;&#43;&#x2F;0123456789'>`, "", enforcers.CodeAnswerCredential},
		"EG-108_html_far_in":         {http.Header{"Content-Type": {"text/html"}}, long + `<img src="https://cdn.test/x?jwt=0123456789">`, "", enforcers.CodeAnswerCredential},
		"EG-108_plain":               {http.Header{"Content-Type": {"text/plain"}}, "https://cdn.test/x?X-Amz-Signature=0123456789", "", enforcers.CodeAnswerCredential},
		"EG-108_events":              {http.Header{"Content-Type": {"text/event-stream"}}, "data: https://cdn.test/x?sig=0123456789\n\n", "", enforcers.CodeAnswerCredential},
		"EG-108_xml":                 {http.Header{"Content-Type": {"application/xml"}}, `<Location>https://cdn.test/x?a=b&amp;X-Amz-Signature=0123456789</Location>`, "", enforcers.CodeAnswerCredential},
		"EG-108_atom":                {http.Header{"Content-Type": {"application/atom+xml"}}, `<link href="https://cdn.test/x?token=0123456789"/>`, "", enforcers.CodeAnswerCredential},
		"EG-108_xhtml":               {http.Header{"Content-Type": {"application/xhtml+xml"}}, `<a href="https://cdn.test/x?token=0123456789"/>`, "", enforcers.CodeAnswerCredential},
		"EG-108_vendor_html":         {http.Header{"Content-Type": {"application/vnd.pypi.simple.v1+html"}}, `<a href="https://cdn.test/x?token=0123456789">`, "", enforcers.CodeAnswerCredential},
		"EG-108_no_type":             {http.Header{}, `https://cdn.test/x?token=0123456789`, "", enforcers.CodeAnswerCredential},
		"EG-108_broken_type":         {http.Header{"Content-Type": {"text/html; charset"}}, `https://cdn.test/x?token=0123456789`, "", enforcers.CodeAnswerCredential},
		"EG-78_broken_type":          {http.Header{"Content-Type": {"application/json; charset"}}, `{"token":"ghs_0123456789"}`, "", enforcers.CodeAnswerCredential},
		"html":                       {http.Header{"Content-Type": {"text/html"}}, `<a href="/x?page=2&amp;q=token">token=0123456789 &amp; jwt</a>`, `<a href="/x?page=2&amp;q=token">token=0123456789 &amp; jwt</a>`, ""},
		"binary":                     {http.Header{"Content-Type": {"application/octet-stream"}}, "https://cdn.test/x?token=0123456789", "https://cdn.test/x?token=0123456789", ""},
		"EG-108_location":            {http.Header{"Location": {"https://cdn.test/x?X-Amz-Signature=0123456789"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_fragment":   {http.Header{"Location": {"https://app.test/done#access_token=0123456789&state=x"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_fragment":            {http.Header{"Content-Type": {"text/html"}}, `<a href="https://app.test/done#access_token=0123456789">`, "", enforcers.CodeAnswerCredential},
		"EG-108_location_query":      {http.Header{"Location": {"https://cdn.test/x?page=2"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_second":     {http.Header{"Location": {"/x", "https://cdn.test/x?page=2"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_host":       {http.Header{"Location": {"//cdn.test/x?page=2"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_slashes":    {http.Header{"Location": {"///cdn.test/x?page=2"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_backslash":  {http.Header{"Location": {`/\cdn.test/x?page=2`}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_user":       {http.Header{"Location": {"https://u:p@bound.good.test/x"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_port":       {http.Header{"Location": {"https://bound.good.test:8443/x?y"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_location_broken":     {http.Header{"Location": {"https://%zz/x?y"}}, "", "", enforcers.CodeAnswerCredential},
		"EG-108_link":                {http.Header{"Link": {`<https://cdn.test/x?sig=0123456789>; rel="next"`}}, "", "", enforcers.CodeAnswerCredential},
		"location_same":              {http.Header{"Location": {"https://bound.good.test/x?page=2"}}, "", "", ""},
		"location_same_port":         {http.Header{"Location": {"https://bound.good.test:443/x?page=2"}}, "", "", ""},
		"location_relative":          {http.Header{"Location": {"/x?page=2"}}, "", "", ""},
		"location_elsewhere":         {http.Header{"Location": {"https://cdn.test/x"}}, "", "", ""},
		"cookies":                    {http.Header{"Set-Cookie": {"session=1"}, "Set-Cookie2": {"x"}, "Authentication-Info": {"y"}}, "x", "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp := answerOf(c.header, c.body)
			body, err := guardAnswer(resp, place(t), newTripwire(watching()), true, nil)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(body)
				_ = body.Close()
			}
			code := ""
			if err != nil {
				code = string(problem.CodeOf(err))
			}
			if code != c.code || (c.code == "" && string(got) != c.want) {
				t.Errorf("%q %q, want %q %q", got, code, c.want, c.code)
			}
			if bytes.Contains(got, []byte(canary)) || bytes.Contains(got, []byte("0123456789")) && c.code != "" {
				t.Errorf("it passed: %q", got)
			}
			for _, h := range []string{"Set-Cookie", "Set-Cookie2", "Authentication-Info", "Content-Encoding"} {
				if err == nil && resp.Header.Get(h) != "" {
					t.Errorf("%s passed", h)
				}
			}
		})
	}
}

// TestSignedURLSplit: EG-108. However an answer's bytes arrive, the value of a
// signed URL does not reach the reader.
func TestSignedURLSplit(t *testing.T) {
	for name, c := range map[string][2]string{
		"json": {"application/json", `{"u":"https://cdn.test/x?a=b\u0026key-pair-id=0123456789"}`},
		"html": {"text/html", `<p> <a href="https://cdn.test/x?a=b&amp;x-amz-security-token&#x3d;0123456789">`},
	} {
		for kind, read := range map[string]func(io.Reader) io.Reader{"byte_by_byte": iotest.OneByteReader, "halves": iotest.HalfReader, "with_end": iotest.DataErrReader} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				resp := answerOf(http.Header{"Content-Type": {c[0]}}, "")
				resp.Body = io.NopCloser(read(strings.NewReader(strings.Repeat("before ", 3000) + c[1])))
				body, err := guardAnswer(resp, place(t), newTripwire(watching()), true, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(body)
				if string(problem.CodeOf(err)) != enforcers.CodeAnswerCredential || bytes.Contains(got, []byte("x?a=b")) && bytes.Contains(got, []byte("=0123")) {
					t.Errorf("%v, read %q", err, got[max(0, len(got)-200):])
				}
			})
		}
	}
}

// TestTextDoesNotDelay: an event of a text stream ends with a line, and no
// signed URL reaches across one.
func TestTextDoesNotDelay(t *testing.T) {
	r, w := io.Pipe()
	resp := answerOf(http.Header{"Content-Type": {"text/event-stream"}}, "")
	resp.Body = r
	body, err := guardAnswer(resp, place(t), newTripwire(watching()), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = io.WriteString(w, "data: https://bound.good.test/x?a=b\n\n")
	}()
	b := make([]byte, 100)
	n, err := body.Read(b)
	if err != nil || string(b[:n]) != "data: https://bound.good.test/x?a=b\n\n" {
		t.Errorf("%q %v", b[:n], err)
	}
	<-wrote
	_ = body.Close()
}

func TestGuardedPassesErrors(t *testing.T) {
	broken := errors.New("broken")
	g := &guarded{ReadCloser: io.NopCloser(io.MultiReader(strings.NewReader("canary-7f"), iotest.ErrReader(broken))), t: newTripwire(watching()), of: narrow}
	got, err := io.ReadAll(g)
	if string(got) != "canary-7f" || !errors.Is(err, broken) {
		t.Errorf("%q %v", got, err)
	}
}

// TestTripwireHolds: EG-76: what is held back is the longest end of a window
// that one of the patterns begins with, and no less.
func TestTripwireHolds(t *testing.T) {
	w := newTripwire([]secret.Value{secret.FromString("aabaabaa"), secret.FromString("canary-0123456789")})
	rapid.Check(t, func(t *rapid.T) {
		window := []byte(rapid.StringMatching(`[abx]{0,40}|x*canary-[0-9]{0,8}|[0-9A-F]{0,30}|6[0-9a-f]{0,20}`).Draw(t, "window"))
		if w.holds(window) {
			t.Skip()
		}
		want := 0
		for n := 1; n <= len(window); n++ {
			for _, p := range w.patterns {
				if bytes.HasPrefix(p, window[len(window)-n:]) {
					want = n
				}
			}
		}
		if got, err := w.check(window); got != want || err != nil {
			t.Fatalf("%q: %d %v, want %d", window, got, err, want)
		}
	})
}

// TestTripwires: a tripwire is kept for as long as the connection's secrets stay
// what they are, and knows the new ones from the first request on.
func TestTripwires(t *testing.T) {
	var c tripwires
	first := c.of("main", watching())
	first.fields = true
	if again := c.of("main", watching()); again.fields || &again.patterns[0] != &first.patterns[0] {
		t.Error("the patterns were made again, or what one answer is looked into for is another's")
	}
	for _, watch := range [][]secret.Value{{secret.FromString("another-" + canary[1:])}, {secret.FromString(canary), secret.FromString("second-of-two")}, nil} {
		got := c.of("main", watch)
		for _, v := range watch {
			if !got.holds(v.Reveal()) {
				t.Errorf("a new secret is not looked for")
			}
		}
	}
	if kept := c.of("other", watching()); !kept.holds([]byte(canary)) {
		t.Error("one connection's secrets are another's")
	}
}

// TestLooksInto: what is looked for depends on what an answer says it is, however
// it spells that.
func TestLooksInto(t *testing.T) {
	for kind, want := range map[string]lookedInto{
		"application/json": {true, true}, "text/plain": {false, true}, "text/html": {false, true},
		"text/event-stream": {false, true}, "application/octet-stream": {false, false},
	} {
		for _, as := range []string{kind, kind + "; charset=utf-8", kind + ";charset=utf-8", kind + " ; Charset=\"utf-8\"", strings.ToUpper(kind)} {
			if fields, urls := looksInto(as); (lookedInto{fields, urls}) != want {
				t.Errorf("%s: %t %t, want %+v", as, fields, urls, want)
			}
		}
	}
	for _, as := range []string{"", "text/plain; charset=utf-8;", "text/plain; charset=utf-8; charset=x", "text/plain; charset"} {
		want := lookedInto{}
		want.fields, want.urls = parsedInto(as)
		if fields, urls := looksInto(as); (lookedInto{fields, urls}) != want {
			t.Errorf("%q: %t %t, want %+v", as, fields, urls, want)
		}
	}
}
