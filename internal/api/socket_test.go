package api_test

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

func TestSocketIsForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatehouse.sock")
	l, err := api.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Perm() != 0o600 || st.Mode().Type() != os.ModeSocket {
		t.Fatal(st.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatal("the socket is still there")
	}
}

func TestSocketOfALivingNodeIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := api.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := api.ListenSocket(path); problem.CodeOf(err) != problem.Conflict {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal("the living node lost its socket:", err)
	}
	_ = c.Close()
}

func TestSocketOfADeadNodeIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := api.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// TestSocketNeedsNoLogin: whoever may open the file may do everything.
func TestSocketNeedsNoLogin(t *testing.T) {
	w := newWorld(t, nil)
	c := w.socket()
	var p view.Page[view.Session]
	if err := c.Get(t.Context(), "/v1/sessions", url.Values{"limit": {"3"}}, &p); err != nil || len(p.Items) != 3 || p.Next == "" {
		t.Fatal(p, err)
	}
	var n api.Named
	if err := c.Post(t.Context(), "/v1/sessions/S1/kill", nil, &n); err != nil || n.ID != "S1" || w.did.last() != "kill S1 by local via cli" {
		t.Fatal(n, err, w.did.last())
	}
	var a api.Applied
	if err := c.Post(t.Context(), "/v1/bundles", []byte("kind: Bundle"), &a); err != nil || w.did.last() != `apply "kind: Bundle" by local via cli` {
		t.Fatal(a, err, w.did.last())
	}
}

func TestClientErrorsAreProblems(t *testing.T) {
	w := newWorld(t, nil)
	c := w.socket()
	err := c.Get(t.Context(), "/v1/sessions/none", nil, nil)
	if problem.CodeOf(err) != problem.NotFound || problem.HintOf(err) == "" {
		t.Fatal(err)
	}
	if _, err := c.File(t.Context(), "/v1/receipts/export", url.Values{"x": {"1"}}); problem.CodeOf(err) != problem.Usage {
		t.Fatal(err)
	}
	gone := api.NewClient(filepath.Join(t.TempDir(), "none"))
	if err := gone.Get(t.Context(), "/v1/status", nil, nil); problem.CodeOf(err) != problem.Unreachable {
		t.Fatal(err)
	}
	// Something else listens there.
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) }))
	other := api.NewClient(path)
	defer other.Close()
	if err := other.Get(t.Context(), "/v1/status", nil, nil); err == nil || problem.CodeOf(err) != problem.Internal {
		t.Fatal(err)
	}
}
