package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// sse is one server-sent event.
type sse struct{ id, event, data string }

// events reads a stream until it ends or most events have come.
func (b *browser) events(path, last string, most int) (status int, out []sse) {
	b.w.t.Helper()
	ctx, cancel := context.WithCancel(b.w.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.srv.URL+path, nil)
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Host = "127.0.0.1:8081"
	r.AddCookie(b.cookie)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := b.srv.Client().Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	e := sse{}
	for len(out) < most && lines.Scan() {
		k, v, _ := strings.Cut(lines.Text(), ": ")
		switch k {
		case "id":
			e.id = v
		case "event":
			e.event = v
		case "data":
			e.data = v
		case "":
			if e.event != "" {
				out = append(out, e)
			}
			e = sse{}
		}
	}
	return resp.StatusCode, out
}

// TestStreamResumes cuts a reader off behind every event: what it has read and
// what it reads after coming back is everything, once.
func TestStreamResumes(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	all, err := w.view.Sessions(view.SessionFilter{State: "ended"}, "", 1)
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("%v %v", all, err)
	}
	id := all.Items[0].ID
	for name, path := range map[string]string{"one_session": "/v1/receipts/stream?session=" + id, "all": "/v1/receipts/stream"} {
		t.Run(name, func(t *testing.T) {
			status, whole := b.events(path, "", 1<<20)
			if status != http.StatusOK || len(whole) < 3 {
				t.Fatalf("%d, %d events", status, len(whole))
			}
			receipts := whole
			if name == "one_session" {
				if last := whole[len(whole)-1]; last.event != "end" || last.id != "" {
					t.Fatalf("a closed session's stream ends with %+v", last)
				}
				receipts = whole[:len(whole)-1]
				for i, e := range receipts {
					var r view.Receipt
					if err := json.Unmarshal([]byte(e.data), &r); err != nil || r.Seq != uint64(i) || r.Session != id || r.Seal != view.SealValid {
						t.Fatalf("event %d is %+v, %v", i, r, err)
					}
				}
				if status, _ := b.events(path, receipts[len(receipts)-1].id, 1); status != http.StatusNoContent {
					t.Fatalf("asked behind the end: %d", status)
				}
			}
			for cut := 1; cut < min(len(receipts), 8); cut++ {
				_, head := b.events(path, "", cut)
				_, tail := b.events(path, head[cut-1].id, 1<<20)
				if d := cmp.Diff(whole, append(head, tail...), cmp.AllowUnexported(sse{})); d != "" {
					t.Fatalf("cut behind event %d: %s", cut, d)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		path, last string
		code       problem.Code
	}{
		"unknown session": {"/v1/receipts/stream?session=none", "", problem.NotFound},
		"garbage":         {"/v1/receipts/stream", "%%%", problem.Usage},
		"another cursor":  {"/v1/receipts/stream", "czE", problem.Usage},
		"other bytes":     {"/v1/receipts/stream", "dDEuQUFBQUFBQUFBQUFBQUFBQQ", problem.Conflict}, // t1.AAAAAAAAAAAAAAAA
	} {
		t.Run(name, func(t *testing.T) {
			r, body := b.do(http.MethodGet, c.path, "", func(r *http.Request) {
				if c.last != "" {
					r.Header.Set("Last-Event-ID", c.last)
				}
			})
			var p api.Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code != c.code {
				t.Fatalf("%s %s", r.Status, body)
			}
		})
	}
	if r, body := b.do(http.MethodGet, "/v1/receipts/keyset", "", nil); r.StatusCode != 200 || strings.TrimSpace(body) != `{"note":"keyset"}` {
		t.Errorf("keyset: %s %s", r.Status, body)
	}
	if r, body := b.do(http.MethodGet, "/v1/receipts/export?open=people", "", nil); r.StatusCode != 422 {
		t.Errorf("a class that does not exist: %s %s", r.Status, body)
	}
}

// open is a tape whose end is not the end.
type open struct{ tape }

func (o open) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return func(yield func(bus.Msg, error) bool) {
		for m, err := range o.Read(ctx, stream, filter, from) {
			if !yield(m, err) {
				return
			}
		}
		<-ctx.Done()
	}
}

// TestStopEndsStreams: a node that stops does not wait for its readers.
func TestStopEndsStreams(t *testing.T) {
	data, err := streams()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *api.Options) {
		v := view.New(open{data}, view.Options{})
		if err := v.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.View = v
	})
	b := w.operator().login()
	read := make(chan int)
	go func() {
		_, got := b.events("/v1/receipts/stream", "", 1<<20)
		read <- len(got)
	}()
	w.Stop()
	<-read
}

// deadlines notes whether each flush of an answer had a deadline before it.
type deadlines struct {
	http.ResponseWriter
	set                bool
	flushes, unlimited int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = time.Until(t) > 0
	return nil
}

func (d *deadlines) FlushError() error {
	d.flushes++
	if !d.set {
		d.unlimited++
	}
	d.set = false
	return nil
}

// T-15: nobody holds a stream open by not reading it.
func TestStreamIsNotHeldOpen(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	all, err := w.view.Sessions(view.SessionFilter{State: "ended"}, "", 1)
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("%v %v", all, err)
	}
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8081/v1/receipts/stream?session="+all.Items[0].ID, nil)
	r.AddCookie(b.cookie)
	d := &deadlines{ResponseWriter: httptest.NewRecorder()}
	w.Operator().ServeHTTP(d, r)
	if d.flushes < 3 || d.unlimited != 0 {
		t.Errorf("%d of %d flushes had no deadline", d.unlimited, d.flushes)
	}
}

// T-15: a stream that is open ends with its reader's login, token or role.
func TestStreamsEndWithTheLogin(t *testing.T) {
	data, err := streams()
	if err != nil {
		t.Fatal(err)
	}
	w, token := people(t, func(o *api.Options) {
		// A page that is told of changes until its reader leaves.
		o.UI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		v := view.New(open{data}, view.Options{})
		if err := v.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.View = v
	})
	var made api.NewToken
	for name, c := range map[string]struct {
		change func(r *http.Request)
		end    func(b *browser)
	}{
		"T-15_page_logged_out": {nil, func(b *browser) { b.do(http.MethodPost, "/logout", "", nil) }},
		"T-15_logged_out":      {nil, func(b *browser) { b.do(http.MethodPost, "/logout", "", nil) }},
		"T-15_expired":         {nil, func(*browser) { w.later(13 * time.Hour) }},
		"T-15_token_revoked": {func(r *http.Request) { bearer(made.Text)(r) }, func(b *browser) {
			if r, body := b.do(http.MethodPost, "/v1/tokens/"+made.ID+"/revoke", "", nil); r.StatusCode != http.StatusOK {
				t.Error(r.Status, body)
			}
		}},
		"T-15_token_expired": {func(r *http.Request) { bearer(token("ann@example.com", w.now, auth.Viewer))(r) }, func(*browser) { w.later(2 * time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := w.operator().login()
			_, body := b.do(http.MethodPost, "/v1/tokens", `{"name":"x","roles":["viewer"],"life":"24h"}`, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
			if err := json.Unmarshal([]byte(body), &made); err != nil {
				t.Fatal(err)
			}
			path := "/v1/receipts/stream"
			if strings.Contains(name, "page") {
				path = "/ui/sessions/S1/live"
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.srv.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "127.0.0.1:8081"
			if c.change != nil {
				c.change(r)
			} else {
				r.AddCookie(b.cookie)
			}
			resp, err := b.srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			lines := bufio.NewScanner(resp.Body)
			lines.Buffer(nil, 1<<20)
			if !lines.Scan() { // it runs
				t.Fatal(lines.Err())
			}
			c.end(b)
			for lines.Scan() { // and ends; a stream that goes on is ended by the test's own deadline
			}
			if err := lines.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
