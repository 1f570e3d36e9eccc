package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// far is the other end of a connection in a test.
type far struct {
	net.Conn
	r *bufio.Reader
}

// request reads one request and its body.
func (f *far) request() (*http.Request, string, error) {
	r, err := http.ReadRequest(f.r)
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(r.Body)
	return r, string(b), err
}

// pair returns a connection, reserved, and the server's end of it.
func pair(t *testing.T) (*http1, *far) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newHTTP1(&conn{Conn: ours, stop: func() bool { return true }}, time.Minute)
	t.Cleanup(func() { _, _ = c.Close(), theirs.Close() })
	return c, &far{theirs, bufio.NewReader(theirs)}
}

func newAsk(t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://example.com/a", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestHTTP1Answers: what an answer is, and whether the connection can be used
// again after it.
func TestHTTP1Answers(t *testing.T) {
	for name, c := range map[string]struct {
		method, answer string
		ends           bool // the server closes behind it
		want, fails    string
		again          bool
	}{
		"length":        {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 hi", again: true},
		"chunks":        {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", want: "200 hi", again: true},
		"trailer":       {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n1\r\nh\r\n0\r\nA: b\r\n\r\n", want: "200 h b", again: true},
		"none":          {answer: "HTTP/1.1 204 No Content\r\n\r\n", want: "204 ", again: true},
		"not_modified":  {answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", want: "304 ", again: true},
		"get":           {method: " ", answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 hi", again: true},
		"head":          {method: "HEAD", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", want: "200 ", again: true},
		"informational": {answer: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 hi", again: true},
		"until_close":   {answer: "HTTP/1.1 200 OK\r\n\r\nhi", ends: true, want: "200 hi"},
		"says_close":    {answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", want: "200 hi"},
		"old":           {answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 hi"},
		"says_more":     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", want: "200 hi"},
		"switches":      {answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", fails: errSwitched.Error()},
		"long_head":     {answer: "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 2*maxHead) + "\r\n\r\n", fails: errLongHead.Error()},
		"many_heads":    {answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxHead/20), fails: errLongHead.Error()},
		"broken_head":   {answer: "HTTP/1.1 200 O", ends: true, fails: "EOF"},
		"broken_body":   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", ends: true, fails: "EOF"},
		"two_lengths":   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", fails: "Content-Length"},
	} {
		t.Run(name, func(t *testing.T) {
			k, f := pair(t)
			if c.method == "" {
				c.method = "GET"
			}
			r := newAsk(t, strings.TrimSpace(c.method), nil)
			if c.method == " " {
				r.Method = "" // GET, as net/http has it
			}
			go func() {
				_, _, _ = f.request()
				_, _ = io.WriteString(f, c.answer)
				if c.ends {
					_ = f.Close()
				}
			}()
			got, err := "", error(nil)
			resp, err := k.RoundTrip(r)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if got = fmt.Sprintf("%d %s", resp.StatusCode, b); resp.Trailer != nil {
					got += " " + resp.Trailer.Get("A")
				}
			}
			switch {
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("%v, want %s", err, c.fails)
			case c.fails == "" && (err != nil || got != c.want):
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
			if again := k.Available() == 1; again != c.again {
				t.Errorf("can be used again: %t", again)
			}
		})
	}
}

// TestHTTP1Unasked: what comes while nobody asks ends the connection, so that
// nobody takes it for an answer.
func TestHTTP1Unasked(t *testing.T) {
	for name, do := range map[string]func(f *far){
		"answer": func(f *far) { _, _ = io.WriteString(f, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") },
		"end":    func(f *far) { _ = f.Close() },
	} {
		for _, by := range []string{"reserve", "look"} {
			t.Run(name+"_"+by, func(t *testing.T) {
				k, f := pair(t)
				told := 0
				k.changed(func() { told++ })
				k.Release()
				if k.leave(false) || k.Reserve() != nil {
					t.Fatal("a new connection cannot be used")
				}
				if k.Reserve() == nil || k.leave(true) {
					t.Fatal("it was given away twice")
				}
				k.Release()
				do(f)
				if err := waitFor(k.k.Conn); err != nil {
					t.Fatal(err)
				}
				if by == "look" && !k.leave(false) || k.Reserve() == nil || k.Available() != 0 || k.Err() == nil || told < 2 {
					t.Errorf("it can still be used; told %d times", told)
				}
			})
		}
	}
}

// waitFor waits until something can be read from a socket.
func waitFor(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	defer c.SetReadDeadline(time.Time{}) //nolint:errcheck // a test
	return Readable(c)
}

// TestHTTP1EarlyAnswer: an answer comes through before the body it makes
// needless has been sent, and the connection is not used again.
func TestHTTP1EarlyAnswer(t *testing.T) {
	k, f := pair(t)
	go func() {
		_, _ = http.ReadRequest(f.r)
		_, _ = io.WriteString(f, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
	}()
	resp, err := k.RoundTrip(newAsk(t, "POST", io.LimitReader(zeros{}, 1<<30)))
	if err != nil || resp.StatusCode != 413 {
		t.Fatalf("%v %v", resp, err)
	}
	if k.Available() != 0 {
		t.Error("it is used again with a body on its way")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestHTTP1BrokenBody: what the caller's body says when it breaks is the error,
// and the server does not see a whole request.
func TestHTTP1BrokenBody(t *testing.T) {
	k, f := pair(t)
	left := errors.New("the client left")
	seen := make(chan error, 1)
	go func() {
		_, _, err := f.request()
		seen <- err
	}()
	if _, err := k.RoundTrip(newAsk(t, "POST", io.MultiReader(strings.NewReader("half"), failing{left}))); !errors.Is(err, left) {
		t.Errorf("%v", err)
	}
	if err := <-seen; err == nil {
		t.Error("the server has a whole request")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestHTTP1Expectation: a body that asks first is sent after a 100, and not at
// all after a refusal.
func TestHTTP1Expectation(t *testing.T) {
	for name, answer := range map[string]string{"100": "HTTP/1.1 100 Continue\r\n\r\n", "417": ""} {
		t.Run(name, func(t *testing.T) {
			k, f := pair(t)
			body := &countingBody{r: strings.NewReader("hello")}
			go func() {
				r, err := http.ReadRequest(f.r)
				if err != nil {
					return
				}
				if answer == "" {
					_, _ = io.WriteString(f, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
					return
				}
				_, _ = io.WriteString(f, answer)
				b, _ := io.ReadAll(r.Body)
				fmt.Fprintf(f, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
			}()
			r := newAsk(t, "POST", body)
			r.ContentLength = 5
			r.Header.Set("Expect", "100-continue")
			resp, err := k.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			if want := map[bool]string{true: "417  0 0", false: "200 hello 5 1"}[answer == ""]; fmt.Sprintf("%d %s %d %d", resp.StatusCode, b, body.n, k.Available()) != want || err != nil {
				t.Errorf("%d %q, %d bytes of the body, available %d, %v", resp.StatusCode, b, body.n, k.Available(), err)
			}
		})
	}
}

type countingBody struct {
	r io.Reader
	n int
}

func (c *countingBody) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// TestHTTP1Cut: the end of the caller's context ends the connection, and its
// cause is what the caller is told. So does an answer that nobody reads on.
func TestHTTP1Cut(t *testing.T) {
	cause := errors.New("revoked")
	for _, when := range []string{"head", "body", "unread"} {
		t.Run("EG-70_"+when, func(t *testing.T) {
			k, f := pair(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() {
				_, _, _ = f.request()
				if when == "head" {
					cancel(cause)
				} else {
					_, _ = io.WriteString(f, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n")
				}
				_, err := f.r.ReadByte()
				ended <- err
			}()
			resp, err := k.RoundTrip(newAsk(t, "GET", nil).WithContext(ctx))
			if err == nil {
				if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if when == "body" {
					cancel(cause)
					_, err = resp.Body.Read(make([]byte, 1))
				}
				_ = resp.Body.Close()
			}
			if when != "unread" && !errors.Is(err, cause) {
				t.Errorf("%v", err)
			}
			if err := <-ended; err == nil || k.Available() != 0 {
				t.Error("the connection lives on")
			}
			if _, err := k.RoundTrip(newAsk(t, "GET", nil)); err == nil {
				t.Error("and carries requests")
			}
		})
	}
}

// TestHTTP1Malformed: EG-51: a field that would be more than one on the wire is
// not sent, whoever set it.
func TestHTTP1Malformed(t *testing.T) {
	for name, set := range map[string]func(r *http.Request){
		"name":    func(r *http.Request) { r.Header["A: b\r\nC"] = []string{"x"} },
		"value":   func(r *http.Request) { r.Header["A"] = []string{"x\r\nB: y"} },
		"trailer": func(r *http.Request) { r.Trailer = http.Header{"A": {"x\r\nB: y"}} },
		"method":  func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nA:" },
		"host":    func(r *http.Request) { r.Host = "" },
		"query":   func(r *http.Request) { r.URL.RawQuery = "a HTTP/1.1" },
		"target":  func(r *http.Request) { r.URL.Opaque = "/a HTTP/1.1" },
	} {
		t.Run("EG-51_"+name, func(t *testing.T) {
			k, _ := pair(t)
			r := newAsk(t, "GET", nil)
			set(r)
			if _, err := k.RoundTrip(r); err == nil || k.k.sent.Load() != 0 || k.Available() != 1 {
				t.Errorf("%v, %d bytes sent", err, k.k.sent.Load())
			}
		})
	}
}

// TestHTTP1HeldByTLS: EG-52: what a server sends behind an answer is nobody's answer,
// when TLS has it already and the socket shows nothing.
func TestHTTP1HeldByTLS(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	t.Cleanup(cert.Close)
	const planted = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		size   int
		behind []string // each a record of its own
		joined bool     // the first with the answer in one record
		again  bool
	}{
		"nothing":           {size: 2, again: true},
		"EG-52_answer":      {size: 2, behind: []string{planted}},
		"EG-52_after_large": {size: 12_000, behind: []string{planted}},
		"EG-52_same_record": {size: 12_000, behind: []string{planted}, joined: true},
		"EG-52_no_body":     {behind: []string{planted}},
		"EG-52_half_a_head": {size: 2, behind: []string{"HTTP/1.1 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			k, f := pair(t)
			at := &atOnce{Conn: f.Conn}
			s := tls.Server(at, cert.TLS.Clone())
			k.k.tls = tls.Client(k.k, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
			k.nc = k.k.tls
			done := make(chan error, 1)
			go func() { done <- s.Handshake() }()
			if err := errors.Join(k.k.tls.Handshake(), <-done); err != nil {
				t.Fatal(err)
			}
			go func() {
				r := bufio.NewReader(s)
				for range 2 {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					records := []string{fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", c.size, strings.Repeat("x", c.size))}
					if records = append(records, c.behind...); c.joined {
						records = []string{strings.Join(records, "")}
					}
					at.hold()
					for _, record := range records {
						_, _ = io.WriteString(s, record)
					}
					_ = at.release()
				}
			}()
			for range 2 {
				resp, err := k.RoundTrip(newAsk(t, "GET", nil))
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, c.size)
				if _, err := io.ReadFull(resp.Body, b); err != nil {
					t.Fatal(err)
				}
				if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Fatal(n, err)
				}
				if again := k.Available() == 1 && k.Reserve() == nil; again != c.again {
					t.Fatalf("can be used again: %t", again)
				}
				if !c.again {
					return
				}
			}
		})
	}
}

// atOnce sends what is written meanwhile in one piece.
type atOnce struct {
	net.Conn
	held    []byte
	holding bool
}

func (c *atOnce) hold() { c.holding = true }

func (c *atOnce) release() error {
	_, err := c.Conn.Write(c.held)
	c.held, c.holding = nil, false
	return err
}

func (c *atOnce) Write(b []byte) (int, error) {
	if !c.holding {
		return c.Conn.Write(b)
	}
	c.held = append(c.held, b...)
	return len(b), nil
}

// TestHTTP1Ended: nothing is sent for a caller who has gone already.
func TestHTTP1Ended(t *testing.T) {
	k, _ := pair(t)
	cause := errors.New("revoked")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := k.RoundTrip(newAsk(t, "GET", nil).WithContext(ctx)); !errors.Is(err, cause) || k.k.sent.Load() != 0 || k.Available() != 1 {
		t.Errorf("%v, %d bytes sent", err, k.k.sent.Load())
	}
}

// TestConnCountsFirst: bytes on their way are not said to be none.
func TestConnCountsFirst(t *testing.T) {
	ours, theirs := net.Pipe()
	k := &conn{Conn: ours, stop: func() bool { return true }}
	wrote := make(chan int, 1)
	go func() {
		n, _ := k.Write([]byte("hello"))
		wrote <- n
	}()
	if _, err := io.ReadFull(theirs, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if k.sent.Load() == 0 {
		t.Error("two bytes are there, and none was sent")
	}
	_ = theirs.Close()
	if n := <-wrote; uint64(n) != k.sent.Load() {
		t.Errorf("%d bytes sent, counted %d", n, k.sent.Load())
	}
}

// TestHTTP1LyingBody: a body that is not as long as was said ends the exchange at
// once, and the server does not see a whole request.
func TestHTTP1LyingBody(t *testing.T) {
	for name, length := range map[string]int64{"EG-50_longer": 4, "EG-50_shorter": 6} {
		t.Run(name, func(t *testing.T) {
			k, f := pair(t)
			seen := make(chan error, 1)
			go func() {
				_, _, err := f.request()
				seen <- err
			}()
			r := newAsk(t, "POST", io.MultiReader(strings.NewReader("hello")))
			r.ContentLength = length
			_, err := k.RoundTrip(r)
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || k.Available() != 0 {
				t.Errorf("%v", err)
			}
			if err := <-seen; err == nil {
				t.Error("the server has a whole request")
			}
		})
	}
}

// TestHTTP1Wait: an answer has a time in which to begin, counted from the
// request's end, and as long as it likes from then on.
func TestHTTP1Wait(t *testing.T) {
	for name, c := range map[string]struct {
		body io.Reader // of the request
		late bool
	}{
		"slow_body": {}, "slow_head": {late: true},
		"slow_body_after_upload": {body: strings.NewReader("hello")}, "slow_head_after_upload": {body: strings.NewReader("hello"), late: true},
	} {
		t.Run(name, func(t *testing.T) {
			k, f := pair(t)
			k.wait = 50 * time.Millisecond
			if !c.late {
				k.wait = 500 * time.Millisecond // the head has to come in it
			}
			gone := make(chan error, 1)
			go func() {
				_, _, _ = f.request()
				if !c.late {
					_, _ = io.WriteString(f, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh")
					time.Sleep(k.wait + 100*time.Millisecond)
					_, _ = io.WriteString(f, "i")
				}
				_, err := f.r.ReadByte()
				gone <- err
			}()
			resp, err := k.RoundTrip(newAsk(t, "POST", c.body))
			if c.late {
				if !errors.Is(err, errLate) || <-gone == nil || k.Available() != 0 {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); string(b) != "hi" || err != nil || k.Available() != 1 {
				t.Errorf("%q %v", b, err)
			}
		})
	}
}

// TestHTTP1Bare: a request of a head alone is on the wire what net/http makes of
// it, or left to net/http.
func TestHTTP1Bare(t *testing.T) {
	agent := func(v ...string) http.Header { return http.Header{"User-Agent": v} }
	for name, c := range map[string]struct {
		set func(r *http.Request)
		not bool // left to net/http
	}{
		"get":      {set: func(*http.Request) {}},
		"head":     {set: func(r *http.Request) { r.Method = "HEAD" }},
		"opaque":   {set: func(r *http.Request) { r.URL.Opaque, r.URL.RawQuery = "/b%2Fc", "x=1&y" }},
		"slashes":  {set: func(r *http.Request) { r.URL.Opaque = "//b" }},
		"query":    {set: func(r *http.Request) { r.URL.RawQuery = "x" }},
		"escaped":  {set: func(r *http.Request) { r.URL.Path = "/a b\xff" }},
		"port":     {set: func(r *http.Request) { r.Host = "example.com:8443" }},
		"address":  {set: func(r *http.Request) { r.Host = "[2001:db8::1]:8443" }},
		"agent":    {set: func(r *http.Request) { r.Header = agent(" curl/8.0\t", "other") }},
		"no_agent": {set: func(r *http.Request) { r.Header = agent() }},
		"blank":    {set: func(r *http.Request) { r.Header = agent(" ") }},
		"fields": {set: func(r *http.Request) {
			r.Header["Z"], r.Header["B"], r.Header["A-B"] = []string{" 1 ", "", "2"}, nil, []string{"\t"}
		}},
		"excluded": {set: func(r *http.Request) {
			r.Header["Content-Length"], r.Header["Host"], r.Header["Trailer"] = []string{"7"}, []string{"b.test"}, []string{"A"}
		}},
		"chunked": {set: func(r *http.Request) {
			r.Header["Transfer-Encoding"], r.TransferEncoding = []string{"chunked"}, []string{"chunked"}
		}},
		"trailer": {set: func(r *http.Request) { r.Trailer = http.Header{"A": {"b"}} }},
		"switch": {set: func(r *http.Request) {
			r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		}},
		"unset":     {set: func(r *http.Request) { delete(r.Header, "User-Agent") }, not: true},
		"post":      {set: func(r *http.Request) { r.Method = "POST" }, not: true},
		"no_method": {set: func(r *http.Request) { r.Method = "" }, not: true},
		"body":      {set: func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hello")), 5 }, not: true},
		"length":    {set: func(r *http.Request) { r.ContentLength = 5 }, not: true},
		"close":     {set: func(r *http.Request) { r.Close = true }, not: true},
		"bad_host":  {set: func(r *http.Request) { r.Host = "a b" }, not: true},
		"idn":       {set: func(r *http.Request) { r.Host = "bücher.example" }, not: true},
		"zone":      {set: func(r *http.Request) { r.Host = "[fe80::1%25eth0]" }, not: true},
		"no_host":   {set: func(r *http.Request) { r.Host = "" }, not: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAsk(t, "GET", nil)
			r.Header["User-Agent"] = []string{"x"}
			c.set(r)
			var ours, theirs bytes.Buffer
			w := bufio.NewWriter(&ours)
			if done := bare(w, r); done == c.not {
				t.Fatalf("written by us: %t", done)
			}
			_ = w.Flush()
			if c.not {
				if ours.Len() > 0 {
					t.Errorf("left to net/http after %q", ours.String())
				}
				return
			}
			if err := r.Write(&theirs); err != nil || ours.String() != theirs.String() {
				t.Errorf("%q, net/http says %q %v", ours.String(), theirs.String(), err)
			}
		})
	}
}
