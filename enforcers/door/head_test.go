package door

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"gatehouse/internal/authority"
)

var headSeeds = []string{
	"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
	"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
	"CONNECT a.test:443 HTTP/1.0\r\n\r\n",
	"GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n",
	"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nabcd",
	"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n4\r\nabcd\r\n0\r\nX: y\r\n\r\n",
	"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a.test\r\n folded\r\n\r\n",
	"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
	"GET / HTTP/1.1\nHost: a.test\n\n",
	"GET / HTTP/1.1\r\nHost: a.test\n\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a.test\r\nX: 1\r\nY: 2\r\nx: 3\r\nX: 4\r\n\r\n",
	"GET / HTTP/1.1\r\nHost:\r\nHost: a.test\r\n\r\n",
	"GET //evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a.test\r\nConnection: close, X\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a.test\r\nX: \x00\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 1\r\nUpgrade: websocket\r\n\r\nx",
}

// FuzzHead is the differential against net/http: whatever the door accepts,
// net/http reads as the same method, target, host, fields and body.
func FuzzHead(f *testing.F) {
	for _, s := range headSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(b), 64)
		raw, err := readHead(r)
		early, came := earlyHead(b)
		if err != nil {
			if early != nil {
				t.Fatalf("%q passes when it comes whole: %+v, else %v", b, early, err)
			}
			return
		}
		if !bytes.HasPrefix(b, raw) || len(raw) > maxHead {
			t.Fatal("the head is not what was sent")
		}
		h := new(head)
		err = h.parse(raw)
		if (err == nil) != (early != nil) || err == nil && (!bytes.Equal(came, raw) || !reflect.DeepEqual(h, early)) {
			t.Fatalf("%q is %+v (%v), and when it comes whole %+v", raw, h, err, early)
		}
		if err != nil {
			var bad malformed
			if !errors.As(err, &bad) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			// net/url refuses some targets that the door's later checks refuse too;
			// anything else would be a difference.
			if _, _, _, perr := splitTarget(h.target); perr == nil && h.method != http.MethodConnect {
				t.Fatalf("net/http refuses %q: %v", raw, err)
			}
			return
		}
		host := h.host
		if h.method == http.MethodConnect || strings.Contains(h.target, "://") {
			host = req.Host // the library takes it from the target
		}
		if req.Method != h.method || req.RequestURI != h.target || req.Host != host || req.ContentLength != h.length {
			t.Fatalf("net/http reads %q %q %q %d, the door %q %q %q %d",
				req.Method, req.RequestURI, req.Host, req.ContentLength, h.method, h.target, h.host, h.length)
		}
		got, want := h.fields.Clone(), req.Header.Clone()
		for _, name := range []string{"Content-Length", "Trailer", "Connection", "Host", "Pragma", "Cache-Control"} {
			delete(got, name)
			delete(want, name)
		}
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("net/http reads %v, the door %v", want, got)
		}
		ours, oerr := io.ReadAll(bodyOf(h, r))
		theirs, terr := io.ReadAll(req.Body)
		if oerr == nil && (terr != nil || !bytes.Equal(ours, theirs)) {
			t.Fatalf("net/http reads the body %q %v, the door %q", theirs, terr, ours)
		}
		if oerr == nil {
			for name, v := range h.trailer {
				if !reflect.DeepEqual(v, req.Trailer[name]) {
					t.Fatalf("net/http reads trailer %s %v, the door %v", name, req.Trailer[name], v)
				}
			}
		}
	})
}

// earlyHead reads a head of which every byte is there, nil if it is refused or
// has no end.
func earlyHead(b []byte) (*head, []byte) {
	r := bufio.NewReaderSize(bytes.NewReader(b), min(len(b), maxHead))
	_, _ = r.Peek(1)
	raw, ok := wholeHead(r)
	if !ok {
		return nil, nil
	}
	h := new(head)
	if h.parse(raw) != nil {
		return nil, raw
	}
	return h, raw
}

func bodyOf(h *head, r *bufio.Reader) io.Reader {
	switch {
	case h.length < 0:
		return &chunked{r: r, trailer: h.trailer}
	default:
		return &fixed{r: r, left: h.length}
	}
}

// FuzzConnectLine: what the door takes for a tunnel's target is what net/http
// takes for it.
func FuzzConnectLine(f *testing.F) {
	for _, s := range []string{"a.test:443", "[::1]:443", "user@a.test:443", "a.test", "/x", "a.test:0443", "198.18.0.1:443", "gatehouse-dns:53"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		raw := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
		h := new(head)
		if h.parse([]byte(raw)) != nil {
			return
		}
		to, err := authority.ParseHostPort(authority.TCP, h.target)
		if err != nil || !h.sameHost(to) {
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", target, err)
		}
		theirs, err := authority.ParseHostPort(authority.TCP, req.Host)
		if err != nil || theirs != to || req.URL.User != nil {
			t.Fatalf("net/http goes to %v (%q), the door to %v", theirs, req.Host, to)
		}
	})
}

// FuzzPath: a canonical path is a fixed point, holds nothing that climbs, and
// net/url decodes it to the same thing.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/v1/x?y", "/v1/../x", "/v1/%2e%2e/x", "/v1/..;/x", "//x", "/a%2fb", "/a%252fb", "/%25%32%65", `/a\b`, "/%5c", "/ä", "/%C3%A4", "/a?b#c", "/%00", "/|", "/%",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		path, query, slashed, err := splitTarget(target)
		if err != nil {
			return
		}
		again, _, slashed2, err := splitTarget(path)
		if err != nil || again != path || slashed2 != slashed {
			t.Fatalf("%q becomes %q, then %q (%v)", target, path, again, err)
		}
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.ContainsAny(path, "\\ \r\n\x00?#") || !visible(path) {
			t.Fatalf("%q is not canonical", path)
		}
		plain, err := url.PathUnescape(path)
		if err != nil {
			t.Fatalf("net/url refuses %q: %v", path, err)
		}
		for segment := range strings.SplitSeq(plain, "/") {
			name, _, _ := strings.Cut(segment, ";")
			if name == "." || name == ".." {
				t.Fatalf("%q climbs as %q", path, plain)
			}
		}
		if strings.Contains(plain, "\\") || strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("%q decodes to %q", path, plain)
		}
		if slashed != strings.Contains(path, "%2F") {
			t.Fatalf("%q: slashed %t", path, slashed)
		}
		if twice, err := url.PathUnescape(plain); err == nil && twice != plain {
			t.Fatalf("%q decodes twice, to %q", path, twice)
		}
		if _, after, ok := strings.Cut(target, "?"); ok && after != query {
			t.Fatalf("query %q of %q", query, target)
		}
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + path + " HTTP/1.1\r\nHost: a.test\r\n\r\n")))
		if err != nil || req.URL.Path != plain || req.URL.RawQuery != "" || req.URL.Host != "" {
			t.Fatalf("net/http reads %v (%v) in %q", req, err, path)
		}
		u := &url.URL{Scheme: "https", Host: "a.test", Opaque: path, RawQuery: query}
		if got := u.RequestURI(); got != path && got != path+"?"+query {
			t.Fatalf("net/url sends %q for %q", got, path)
		}
	})
}

// FuzzDNS: a message is answered only when it is exactly one question, and the
// parser of Go's own resolver reads the same one.
func FuzzDNS(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03api\x04good\x04test\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00"))         // no type
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01")) // no class
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _, ok := question(b)
		if !ok {
			return
		}
		if m.Response || len(m.Question) != 1 || len(m.Answer) != 0 || len(m.Ns) != 0 {
			t.Fatalf("answered %v", m)
		}
		var p dnsmessage.Parser
		h, err := p.Start(b)
		if err != nil || h.ID != m.Id || h.Response {
			t.Fatalf("the resolver reads %+v, %v", h, err)
		}
		host, ip, err := authority.ParseHost(m.Question[0].Name)
		if q, qerr := p.Question(); err == nil && (qerr != nil || q.Name.String() != m.Question[0].Name ||
			uint16(q.Type) != m.Question[0].Qtype || uint16(q.Class) != m.Question[0].Qclass) {
			t.Fatalf("the resolver is asked for %v (%v), the door for %v", q, qerr, m.Question[0])
		}
		if err == nil && !ip && strings.ToLower(strings.TrimSuffix(m.Question[0].Name, ".")) != host {
			t.Fatalf("%q is judged as %q", m.Question[0].Name, host)
		}
	})
}

// FuzzServerName: a server name fits only the tunnel's own name.
func FuzzServerName(f *testing.F) {
	for _, s := range []string{"api.good.test", "API.good.test", "api.good.test.", "evil.test", "", "api.good.test\x00", "93.184.216.34"} {
		f.Add(s)
	}
	to, err := authority.New(authority.HTTPS, "api.good.test", 443)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sni string) {
		if sameName(sni, to) && !strings.EqualFold(strings.TrimSuffix(sni, "."), to.Host()) {
			t.Fatalf("%q fits", sni)
		}
	})
}
