package github

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gogithub "github.com/google/go-github/v66/github"
)

// fakeAPI is GitHub's deliveries API: real HTTP, pages by cursor, 202 for a
// redelivery.
type fakeAPI struct {
	mu         sync.Mutex
	deliveries []map[string]any
	asked      []string
	fail       bool
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := r.URL.Path
	for _, hook := range []string{"/app/hook/deliveries", "/repos/org-77/parser/hooks/9/deliveries", "/orgs/org-77/hooks/9/deliveries"} {
		path = strings.TrimPrefix(path, hook)
	}
	switch {
	case f.fail:
		w.WriteHeader(http.StatusBadGateway)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/attempts"):
		f.asked = append(f.asked, strings.Trim(strings.TrimSuffix(path, "/attempts"), "/"))
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "{}")
	case path == "":
		from := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from)
		to := min(from+2, len(f.deliveries))
		if to < len(f.deliveries) {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?cursor=%d>; rel="next"`, r.Host, r.URL.Path, to))
		}
		_ = json.NewEncoder(w).Encode(f.deliveries[from:to])
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// IN-31: what GitHub sent and the journal lacks is asked for, once.
func TestReconciler(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(age time.Duration) string { return now.Add(-age).Format(time.RFC3339) }
	api := &fakeAPI{deliveries: []map[string]any{
		{"id": 1, "guid": "on-its-way", "delivered_at": at(time.Minute)},
		{"id": 2, "guid": "stored", "delivered_at": at(time.Hour)},
		{"id": 3, "guid": "lost", "delivered_at": at(2 * time.Hour), "status_code": 503},
		{"id": 4, "guid": "lost", "delivered_at": at(3 * time.Hour), "redelivery": true},
		{"id": 5, "guid": "lost-200", "delivered_at": at(70 * time.Hour), "status_code": 200},
		{"id": 6, "guid": "too-old", "delivered_at": at(80 * time.Hour)},
		{"id": 7, "guid": "older", "delivered_at": at(90 * time.Hour)},
	}}
	srv := httptest.NewServer(api)
	defer srv.Close()
	client := gogithub.NewClient(srv.Client())
	base, err := url.Parse(srv.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	client.BaseURL = base
	for name, hook := range map[string]Deliveries{"app": AppHook{client}, "organization": OrganizationHook{client, "org-77", 9},
		"repository": RepositoryHook{func(context.Context) (*gogithub.Client, error) { return client, nil }, "org-77", "parser", 9}} {
		t.Run("IN-31 "+name, func(t *testing.T) {
			api.mu.Lock()
			api.asked, api.fail = nil, false
			api.mu.Unlock()
			r := &Reconciler{Hook: hook, Known: func(id string) bool { return id == "stored" }, Now: func() time.Time { return now }}
			for round, want := range []int{2, 0} {
				if n, err := r.Round(context.Background()); err != nil || n != want {
					t.Errorf("round %d asked for %d, %v, want %d", round, n, err, want)
				}
			}
			if !slices.Equal(api.asked, []string{"3", "5"}) {
				t.Errorf("asked for %v", api.asked)
			}
			api.mu.Lock()
			api.fail = true
			api.mu.Unlock()
			if _, err := r.Round(context.Background()); err == nil {
				t.Error("a failing API is no error")
			}
		})
	}
	t.Run("ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r := &Reconciler{Hook: AppHook{client}, Known: func(string) bool { return true }}
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
