package door_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// frames is an HTTP/2 client that writes what it is told to.
type frames struct {
	t    *testing.T
	fr   *http2.Framer
	enc  *hpack.Encoder
	buf  bytes.Buffer
	next uint32
}

func (in *inside) frames(t *testing.T, host string) *frames {
	t.Helper()
	c, _, re := in.tunnel(host + ":443")
	if re.status != 200 {
		t.Fatalf("tunnel: %d", re.status)
	}
	tc := tls.Client(c, &tls.Config{ServerName: host, RootCAs: in.roots, NextProtos: []string{"h2"}})
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if p := tc.ConnectionState().NegotiatedProtocol; p != "h2" {
		t.Fatalf("negotiated %q", p)
	}
	_, _ = io.WriteString(tc, http2.ClientPreface)
	f := &frames{t: t, fr: http2.NewFramer(tc, tc), next: 1}
	f.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.buf)
	if err := f.fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

// send opens a stream with the fields as they stand and returns its answer: a
// status, or the name of the error that reset it.
func (f *frames) send(fields ...string) string {
	f.t.Helper()
	f.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	id := f.next
	f.next += 2
	if err := f.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.buf.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		f.t.Fatal(err)
	}
	status := ""
	for {
		frame, err := f.fr.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if frame.StreamID == id {
				status = frame.PseudoValue("status")
				if frame.StreamEnded() {
					return status
				}
			}
		case *http2.DataFrame:
			if frame.StreamID == id && frame.StreamEnded() {
				return status
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return frame.ErrCode.String()
			}
		case *http2.GoAwayFrame:
			return "GOAWAY " + frame.ErrCode.String()
		}
	}
}

func (f *frames) get(authority, path string) string {
	return f.send(":method", "GET", ":scheme", "https", ":authority", authority, ":path", path)
}

// TestBypassMatrixHTTP2 shows that each stream is judged by itself.
func TestBypassMatrixHTTP2(t *testing.T) {
	o := newOutside(t)
	for name, c := range map[string]struct {
		fields []string
		status string
		code   string
	}{
		"EG-45_authority_differs":  {[]string{":method", "GET", ":scheme", "https", ":authority", "evil.test", ":path", "/v1/x"}, "421", enforcers.CodeMisdirected},
		"EG-45_authority_port":     {[]string{":method", "GET", ":scheme", "https", ":authority", good + ":8443", ":path", "/v1/x"}, "421", enforcers.CodeMisdirected},
		"EG-45_host_clash":         {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x", "host", "evil.test"}, "421", enforcers.CodeMisdirected},
		"EG-45_two_hosts":          {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x", "host", good, "host", good}, "421", enforcers.CodeMisdirected},
		"EG-45_host_only_evil":     {[]string{":method", "GET", ":scheme", "https", ":path", "/v1/x", "host", "evil.test"}, "421", enforcers.CodeMisdirected},
		"EG-45_no_authority":       {[]string{":method", "GET", ":scheme", "https", ":path", "/v1/x"}, "400", enforcers.CodeBadAuthority},
		"EG-45_userinfo":           {[]string{":method", "GET", ":scheme", "https", ":authority", "x@" + good, ":path", "/v1/x"}, "PROTOCOL_ERROR", enforcers.CodeMalformed},
		"EG-46_second_listed_name": {[]string{":method", "GET", ":scheme", "https", ":authority", "git.good.test", ":path", "/org/repo/x"}, "421", enforcers.CodeMisdirected},
		"EG-54_trace":              {[]string{":method", "TRACE", ":scheme", "https", ":authority", good, ":path", "/v1/x"}, "403", enforcers.CodeMethodRefused},
		"EG-54_options_star":       {[]string{":method", "OPTIONS", ":scheme", "https", ":authority", good, ":path", "*"}, "403", enforcers.CodeMethodRefused},
		"EG-54_connect":            {[]string{":method", "CONNECT", ":authority", "evil.test:443"}, "403", enforcers.CodeMethodRefused},
		"EG-56_dot_dot":            {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/../admin"}, "400", enforcers.CodeBadPath},
		"EG-57_encoded_slash":      {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/..%2fadmin"}, "400", enforcers.CodeBadPath},
		"EG-44_absolute_path":      {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "https://evil.test/"}, "400", enforcers.CodeMalformed},
		"EG-51_blank_in_query":     {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x?a HTTP/1.0"}, "400", enforcers.CodeMalformed},
		"EG-51_byte_in_query":      {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x?\xff"}, "400", enforcers.CodeMalformed},
		"EG-50_length_of_nothing":  {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x", "content-length", "4"}, "400", enforcers.CodeMalformed},
		"EG-48_upper_case_field":   {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x", "Accept", "a"}, "PROTOCOL_ERROR", enforcers.CodeMalformed},
		"EG-48_pseudo_twice":       {[]string{":method", "GET", ":method", "PUT", ":scheme", "https", ":authority", good, ":path", "/v1/x"}, "PROTOCOL_ERROR", enforcers.CodeMalformed},
		"EG-51_head_too_long":      {append([]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x"}, slices.Repeat([]string{"x", strings.Repeat("x", 2<<10)}, 18)...), "431", enforcers.CodeMalformed},
		"EG-50_transfer_encoding":  {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x", "transfer-encoding", "chunked"}, "400", enforcers.CodeMalformed},
		"EG-51_connection_field":   {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/v1/x", "connection", "keep-alive"}, "400", enforcers.CodeMalformed},
		"EG-01_path_not_listed":    {[]string{":method", "GET", ":scheme", "https", ":authority", good, ":path", "/admin"}, "403", "path_not_listed"},
	} {
		each(t, name, o, func(t *testing.T, in *inside) {
			f := in.frames(t, good)
			if got := f.get(good, "/v1/first"); got != "200" {
				t.Fatalf("first stream: %s", got)
			}
			w := denied(403, c.code)
			w.status, _ = strconv.Atoi(c.status) // or the name of an error that has none
			if in.gate.Mode() == receipts.Shadow && c.code == "path_not_listed" {
				w = blocked(200, c.code).kept()
			}
			from := in.mark()
			got := f.send(c.fields...)
			// What net/http refuses by itself is receipted once it is certain, when
			// no other stream is under way.
			for end := time.Now().Add(patience); len(in.rec.all()) == from.decisions && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			var re reply
			if re.status, _ = strconv.Atoi(got); re.status == 0 && got != c.status {
				t.Errorf("stream answered %s, want %s", got, c.status)
			}
			in.expect(t, from, re, w)
			if all := in.rec.all()[from.decisions:]; len(all) != 1 || all[0].Action.HTTP.To.Host() != good {
				t.Errorf("receipts: %+v", all)
			}
			from = in.mark()
			next, _ := strconv.Atoi(f.get(good, "/v1/next"))
			in.expect(t, from, reply{status: next}, allowed(200, "egress[0]").kept())
		})
	}
}

// TestHTTP2Outside shows HTTP/2 on the far side, one connection for many
// streams, and trailers both ways.
func TestHTTP2Outside(t *testing.T) {
	o := newOutside(t)
	public := netip.MustParseAddrPort("93.184.216.20:443")
	l := o.listen(t, public)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "X-Sum")
			fmt.Fprintf(w, "%s %s %s", r.Proto, body, r.Trailer.Get("X-Up"))
			w.Header().Set("X-Sum", "down")
		}),
		TLSConfig: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return o.ca.issue(h.ServerName) }},
	}
	go srv.ServeTLS(l, "", "") //nolint:errcheck // ends with Close
	t.Cleanup(func() { _ = srv.Close() })
	o.at(t, "grpc.good.test", func(q dns.Question) *dns.Msg { return answer(q, public.Addr().String()) })
	policy := strings.Replace(matrixPolicy, `"host":"git.good.test"`, `"host":"grpc.good.test"`, 1)
	in := open(t, o, setup{policy: policy})

	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: in.roots},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			c, _, re := in.tunnel("grpc.good.test:443")
			if re.status != 200 {
				return nil, fmt.Errorf("tunnel: %d", re.status)
			}
			return c, nil
		},
	}}
	before := o.tally()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			body := &trailing{Reader: strings.NewReader(fmt.Sprint(i))}
			req, err := http.NewRequest("POST", "https://grpc.good.test/org/repo/x", body)
			if err != nil {
				t.Error(err)
				return
			}
			req.Trailer = http.Header{"X-Up": nil}
			body.done = func() { req.Trailer.Set("X-Up", "up") }
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if want := fmt.Sprintf("HTTP/2.0 %d up", i); string(got) != want || err != nil || resp.ProtoMajor != 2 || resp.Trailer.Get("X-Sum") != "down" {
				t.Errorf("got %s %q %v trailer %v", resp.Proto, got, err, resp.Trailer)
			}
		})
	}
	wg.Wait()
	client.CloseIdleConnections()
	if n := o.tally().accepts - before.accepts; n < 1 || n > 8 {
		t.Errorf("%d connections outside", n)
	}
	in.hangUp()
	requests := 0
	for _, d := range in.rec.all() {
		if d.Action.Kind == enforcers.HTTPRequest {
			requests++
			if out := in.rec.outcomes[d.Receipt]; out.Status != 200 || out.Up < 1 || out.Down < 10 || out.Address != "93.184.216.20" {
				t.Errorf("outcome %+v", out)
			}
		}
	}
	if requests != 8 {
		t.Errorf("%d decisions for 8 streams", requests)
	}
}

// trailing calls done at its end, when a client sets its trailers.
type trailing struct {
	io.Reader
	done func()
}

func (r *trailing) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err == io.EOF {
		r.done()
	}
	return n, err
}

// TestBypassMatrixHTTP2Violation: what ends a whole connection is one refusal.
func TestBypassMatrixHTTP2Violation(t *testing.T) {
	each(t, "EG-51_no_header_block", newOutside(t), func(t *testing.T, in *inside) {
		f := in.frames(t, good)
		if got := f.get(good, "/v1/first"); got != "200" {
			t.Fatalf("first stream: %s", got)
		}
		from := in.mark()
		f.buf.Reset()
		f.buf.WriteString("\xff\xff\xff\xff\xff\xff") // no header block
		if err := f.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: f.next, BlockFragment: f.buf.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := f.fr.ReadFrame(); err != nil {
				break
			}
		}
		in.hangUp()
		in.expect(t, from, reply{}, denied(0, enforcers.CodeMalformed))
		if all := in.rec.all()[from.decisions:]; len(all) != 1 {
			t.Errorf("receipts: %+v", all)
		}
	})
}
