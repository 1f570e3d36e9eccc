package door_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
)

// TestClientLeaves: a client that leaves ends what is done for it, however many
// requests its connection carried before, and whether it had a body.
func TestClientLeaves(t *testing.T) {
	o := newOutside(t)
	for name, text := range map[string]string{
		"get":  get(good, "/v1/slow"),
		"post": "POST /v1/slow HTTP/1.1\r\nHost: " + good + "\r\nContent-Length: 4\r\n\r\nbody",
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			o.handle(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/slow" {
					_, _ = io.Copy(io.Discard, r.Body)
					asked <- struct{}{}
					<-r.Context().Done()
				}
			})
			in := open(t, o, setup{})
			c, r, _ := in.secure(good+":443", good)
			for range 3 {
				_, _ = io.WriteString(c, get(good, "/v1/x"))
				if re := read(r, http.MethodGet); re.status != http.StatusOK {
					t.Fatal(re)
				}
			}
			_, _ = io.WriteString(c, text)
			<-asked
			_ = c.Close()
			in.rec.settled(t)
			if d, out := in.rec.last(); d.Action.HTTP == nil || d.Action.HTTP.Path != "/v1/slow" || out.Code != enforcers.CodeClientGone {
				t.Errorf("%+v ended with %+v", d.Action.HTTP, out)
			}
		})
	}
}

// TestMediatorContext: what a mediator starts ends with its request, not with the
// connection, and tells why.
func TestMediatorContext(t *testing.T) {
	o := newOutside(t)
	given := make(chan context.Context, 1)
	in := open(t, o, setup{routes: []door.Route{{
		Match: func(r *door.Request) bool { return r.To.Host() == good },
		Handler: door.HandlerFunc(func(_ http.ResponseWriter, r *door.Request) {
			given <- r.Context()
			if r.Path == "/v1/slow" {
				<-r.Context().Done()
			}
		}),
	}}})
	ended := func(ctx context.Context) {
		t.Helper()
		select {
		case <-ctx.Done():
		case <-time.After(patience):
			t.Fatal("the context did not end")
		}
	}
	c, r, _ := in.secure(good+":443", good)
	_, _ = io.WriteString(c, get(good, "/v1/x"))
	if re := read(r, http.MethodGet); re.status != http.StatusOK {
		t.Fatal(re)
	}
	ended(<-given)
	_, _ = io.WriteString(c, get(good, "/v1/slow"))
	ctx := <-given
	if ctx.Err() != nil {
		t.Error("the second request's context ended with the first")
	}
	_ = c.Close()
	ended(ctx)
	if code := problem.CodeOf(context.Cause(ctx)); code != enforcers.CodeClientGone {
		t.Errorf("it ended with %s", code)
	}
}
