//go:build linux

package git_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// large is a fake LFS server: its batch API, and objects at the host itself or in
// a store beside it, under addresses that work by themselves.
type large struct {
	t     *testing.T
	store *outside.Site
	other *outside.Site

	mu       sync.Mutex
	place    string // format of the address of an object: OID stands in it
	objects  map[string][]byte
	tampered bool   // objects come with other bytes
	moved    string // where requests whose path ends in away are redirected to
	away     string
	batches  []string // bodies that were asked
	verified []string
	stolen   []string // what reached a place that it must not
}

const (
	atStore   = "https://store.good.test/OID?X-Amz-Signature=0123456789abcdef"
	atHost    = "https://git.good.test/acme/shop.git/info/lfs/objects/OID"
	atGitLab  = "https://git.good.test/acme/shop.git/gitlab-lfs/objects/OID"
	storeWord = "AWS4-HMAC-SHA256 store-canary-0123456789"
)

func newLarge(t *testing.T, w *world) *large {
	t.Helper()
	l := &large{t: t, objects: map[string][]byte{}, place: atStore}
	var err error
	if l.store, err = w.HTTPS("store.good.test", netip.MustParseAddr("93.184.216.51"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != storeWord || r.URL.Query().Get("X-Amz-Signature") == "" {
			l.steal("the store was sent Authorization %q, query %q", r.Header.Get("Authorization"), r.URL.RawQuery)
		}
		l.object(rw, r)
	})); err != nil {
		t.Fatal(err)
	}
	if l.other, err = w.HTTPS("evil.test", netip.MustParseAddr("93.184.216.52"), http.NotFoundHandler()); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.large = l
	w.mu.Unlock()
	return l
}

func (l *large) steal(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stolen = append(l.stolen, fmt.Sprintf(format, args...))
}

// elsewhere answers with a redirect where one is set, and reports that it did.
func (l *large) elsewhere(w http.ResponseWriter, r *http.Request) bool {
	l.mu.Lock()
	to, away := l.moved, l.away
	l.mu.Unlock()
	if to == "" || !strings.HasSuffix(r.URL.Path, away) {
		return false
	}
	http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	return true
}

// ServeHTTP is the host's part.
func (l *large) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.elsewhere(w, r) {
		return
	}
	if _, password, _ := r.BasicAuth(); password != token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if !strings.HasPrefix(strings.ToLower(r.URL.Path), "/acme/shop") {
		l.steal("asked for %s", r.URL.Path)
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/objects/batch"):
		l.batch(w, r)
	case strings.HasSuffix(r.URL.Path, "/verify"):
		b, _ := io.ReadAll(r.Body)
		l.mu.Lock()
		l.verified = append(l.verified, string(b))
		l.mu.Unlock()
	default:
		l.object(w, r)
	}
}

func (l *large) batch(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	var q struct {
		Operation string
		Objects   []struct {
			OID  string
			Size int64
		}
	}
	if err := json.Unmarshal(b, &q); err != nil {
		l.t.Errorf("batch: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = append(l.batches, string(b))
	var objects []any
	for _, o := range q.Objects {
		action := map[string]any{"href": strings.ReplaceAll(l.place, "OID", o.OID), "header": map[string]string{"Authorization": storeWord}, "expires_in": 900}
		one := map[string]any{"oid": o.OID, "size": o.Size, "authenticated": true}
		_, have := l.objects[o.OID]
		switch {
		case q.Operation == "download" && !have:
			one["error"] = map[string]any{"code": 404, "message": "ghs_no such object"}
		case q.Operation == "download":
			one["actions"] = map[string]any{"download": action}
		case !have:
			one["actions"] = map[string]any{"upload": action, "verify": map[string]any{"href": "https://git.good.test/acme/shop.git/info/lfs/verify", "header": map[string]string{"Authorization": "Basic x"}}}
		}
		objects = append(objects, one)
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects, "hash_algo": "sha256"})
}

func (l *large) object(w http.ResponseWriter, r *http.Request) {
	if l.elsewhere(w, r) {
		return
	}
	oid := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	b, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == http.MethodPut {
		l.objects[oid] = b
		return
	}
	b, ok := l.objects[oid]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if l.tampered {
		b = slices.Concat(b[:len(b)-1], []byte{b[len(b)-1] ^ 1})
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b)
}

// at has objects kept at another place.
func (l *large) at(place string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place, l.tampered, l.stolen, l.batches, l.verified = place, false, nil, nil, nil
	l.moved, l.away = "", ""
}

func (l *large) has(oid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.objects[oid] != nil
}

func (l *large) put(content string) string {
	sum := sha256.Sum256([]byte(content))
	oid := hex.EncodeToString(sum[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[oid] = []byte(content)
	return oid
}

// needLFS skips loudly without git-lfs, and installs its filters for the session.
func needLFS(t *testing.T, s *session) {
	t.Helper()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("NOT TESTED on this machine: no git-lfs (Debian package git-lfs)")
	}
	s.must("", "lfs", "install", "--skip-repo")
}

// TestLFS runs the real git lfs against a fake server, through every kind of
// place in which hosts keep large files.
func TestLFS(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	for name, place := range map[string]string{"store": atStore, "host": atHost, "gitlab": atGitLab} {
		t.Run("EG-84_"+name, func(t *testing.T) {
			l.at(place)
			s := open(t, w, setup{push: pushBranches})
			needLFS(t, s)
			dir := s.clone()
			branch := "gatehouse/lfs-" + name
			content := random(3 << 20)
			s.must(dir, "lfs", "track", "*.bin")
			s.commit(dir, "large.bin", content)
			out, err := s.git(dir, "push", "origin", "HEAD:refs/heads/"+branch)
			if err != nil {
				t.Fatalf("push: %v\n%s", err, out)
			}
			sum := sha256.Sum256([]byte(content))
			oid := hex.EncodeToString(sum[:])
			if !l.has(oid) || w.tip("acme/shop", branch) == "" {
				t.Fatalf("the object or the branch is not there:\n%s", out)
			}
			to := filepath.Join(t.TempDir(), "again")
			s.must("", "clone", "-q", "-b", branch, url+"acme/shop.git", to)
			if b, err := os.ReadFile(filepath.Join(to, "large.bin")); err != nil || string(b) != content {
				t.Errorf("%d bytes came back, %v", len(b), err)
			}
			s.stop()
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.stolen) > 0 || len(l.verified) != 1 || !strings.Contains(l.verified[0], oid) {
				t.Errorf("%q, verified %q", l.stolen, l.verified)
			}
			for _, b := range l.batches {
				if !strings.Contains(b, `"transfers":["basic"]`) {
					t.Errorf("asked %s", b)
				}
			}
			ups := 0
			for _, d := range s.rec.of(enforcers.GitPush) {
				if !d.Durable || !d.Decision.Passed {
					t.Errorf("%+v", d.Decision)
				}
				if c := d.Action.Push.Commands; len(c) == 1 && c[0].New == oid && c[0].Ref == "refs/heads/"+branch {
					ups++
				}
			}
			if ups != 3 { // asked for, uploaded, verified
				t.Errorf("%d decisions about the object", ups)
			}
			if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
				t.Errorf("%d files are left behind (%v)", len(left), err)
			}
		})
	}
}

// TestLFSAnswers: nothing that works by itself comes in, and no address leads to
// another repository or host.
func TestLFSAnswers(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	oid := l.put("a large file")
	for name, c := range map[string]struct {
		place string
		ok    bool
	}{
		"store":                     {atStore, true},
		"host":                      {atHost, true},
		"host_without_git":          {"https://git.good.test/ACME/Shop/info/lfs/objects/OID", true},
		"EG-84_sibling":             {"https://git.good.test/acme/docs.git/info/lfs/objects/OID", false},
		"EG-84_unlisted":            {"https://git.good.test/acme/unlisted.git/info/lfs/objects/OID", false},
		"EG-84_dot_segments":        {"https://git.good.test/acme/shop.git/info/lfs/../../../other.git/info/lfs/objects/OID", false},
		"EG-84_encoded":             {"https://git.good.test/acme/shop.git/info/lfs/%2e%2e/objects/OID", false},
		"EG-84_encoded_slash":       {"https://git.good.test/acme/shop.git%2f..%2fother.git/info/lfs/objects/OID", false},
		"EG-84_double_slash":        {"https://git.good.test/acme/shop.git//info/lfs/objects/OID", false},
		"EG-84_not_lfs":             {"https://git.good.test/acme/shop.git/git-receive-pack", false},
		"EG-84_other_host":          {"https://evil.test/OID?X-Amz-Signature=0123456789abcdef", false},
		"EG-84_store_other_port":    {"https://store.good.test:8443/OID", false},
		"EG-84_store_cleartext":     {"http://store.good.test/OID", false},
		"EG-84_user_in_the_address": {"https://git.good.test@evil.test/OID", false},
		"EG-84_metadata":            {"https://169.254.169.254/OID", false},
		"EG-84_not_an_address":      {"://OID", false},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				l.at(c.place)
				s := open(t, w, setup{mode: mode})
				before := l.other.Requests()
				status, text := s.batch(t, fmt.Sprintf(`{"operation":"download","transfers":["basic","ssh"],"objects":[{"oid":%q,"size":12}]}`, oid))
				for _, word := range []string{"store-canary", "Signature", "store.good.test", "evil.test", "header", token} {
					if strings.Contains(text, word) {
						t.Errorf("%q came in: %s", word, text)
					}
				}
				door := url + "acme/shop.git/info/lfs/objects/" + oid
				if status != http.StatusOK || strings.Contains(text, door) != c.ok || strings.Contains(text, git.CodeLFSHref) == c.ok {
					t.Errorf("%d %s", status, text)
				}
				status, code, text := s.send(t, "git.good.test", "GET", "/acme/shop.git/info/lfs/objects/"+oid, "", http.Header{})
				if c.ok && text != "a large file" || !c.ok && (status != http.StatusForbidden || code != git.CodeLFSAsked) {
					t.Errorf("%d %q: %q", status, code, text)
				}
				if l.other.Requests() != before || w.DNS.Queries("evil.test") != 0 {
					t.Error("another host was asked")
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.stolen) > 0 {
					t.Errorf("%q", l.stolen)
				}
			})
		}
	}
}

func (s *session) batch(t *testing.T, body string) (status int, text string) {
	t.Helper()
	status, _, text = s.send(t, "git.good.test", "POST", "/acme/shop.git/info/lfs/objects/batch", body, http.Header{"Content-Type": {"application/vnd.git-lfs+json"}})
	return status, text
}

// TestLFSRefused: what is refused reaches neither the host nor a store, and asks
// for no credential.
func TestLFSRefused(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	l.at(atStore)
	oid := strings.Repeat("a", 64)
	one := fmt.Sprintf(`"objects":[{"oid":%q,"size":12}]`, oid)
	upload := `{"operation":"upload","ref":{"name":"refs/heads/gatehouse/a"},` + one + `}`
	for name, c := range map[string]struct {
		path, body, code string
		push             string
		most             int64
	}{
		"EG-80_sibling":             {path: "acme/other", body: `{"operation":"download",` + one + `}`, code: "repository_not_listed"},
		"EG-81_case":                {path: "ACME/Other", body: `{"operation":"download",` + one + `}`, code: "repository_not_listed"},
		"EG-82_upload_to_a_sibling": {path: "acme/docs", body: upload, push: pushBranches, code: "access_read_only"},
		"EG-82_upload_not_granted":  {body: upload, code: "push_not_listed"},
		"EG-86_upload_for_main":     {body: `{"operation":"upload","ref":{"name":"refs/heads/main"},` + one + `}`, push: pushBranches, code: "ref_not_listed"},
		"EG-86_upload_for_nothing":  {body: `{"operation":"upload",` + one + `}`, push: pushBranches, code: "ref_not_listed"},
		"too_large":                 {body: `{"operation":"download",` + one + `}`, most: 11, code: git.CodePushSize},
		"operation":                 {body: `{"operation":"delete",` + one + `}`, code: git.CodeLFS},
		"operation_twice":           {body: `{"operation":"download","operation":"upload",` + one + `}`, code: git.CodeLFS},
		"operation_twice_by_case":   {body: `{"operation":"download","Operation":"upload",` + one + `}`, code: git.CodeLFS},
		"object_twice":              {body: fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":1},{"oid":%q,"size":2}]}`, oid, oid), code: git.CodeLFS},
		"negative":                  {body: fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":-1}]}`, oid), code: git.CodeLFS},
		"not_an_id":                 {body: `{"operation":"download","objects":[{"oid":"../../../other","size":1}]}`, code: git.CodeLFS},
		"no_objects":                {body: `{"operation":"download","objects":[]}`, code: git.CodeLFS},
		"other_transfer":            {body: `{"operation":"download","transfers":["custom"],` + one + `}`, code: git.CodeLFS},
		"other_hash":                {body: `{"operation":"download","hash_algo":"sha512",` + one + `}`, code: git.CodeLFS},
		"unknown_field":             {body: `{"operation":"download","remote":"https://evil.test",` + one + `}`, code: git.CodeLFS},
		"two_values":                {body: `{"operation":"download",` + one + `}{}`, code: git.CodeLFS},
		"too_many":                  {body: `{"operation":"download","objects":[` + strings.Repeat(`{"oid":"`+oid+`","size":1},`, 1000) + `{}]}`, code: git.CodeLFS},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				s := open(t, w, setup{mode: mode, push: c.push, most: c.most})
				if c.path == "" {
					c.path = "acme/shop"
				}
				before := w.site.Requests() + l.store.Requests()
				_, code, text := s.send(t, "git.good.test", "POST", "/"+c.path+".git/info/lfs/objects/batch", c.body, http.Header{"Content-Type": {"application/vnd.git-lfs+json"}})
				if code != c.code {
					t.Errorf("refused with %q, want %q: %s", code, c.code, text)
				}
				if n := w.site.Requests() + l.store.Requests() - before; n != 0 || len(s.inject.asked()) != 0 {
					t.Errorf("%d requests, credentials asked for %q", n, s.inject.asked())
				}
			})
		}
	}
}

// TestLFSObjects: an object that is not what its name says goes neither out nor
// in, and neither does one that holds a canary, or one too many.
func TestLFSObjects(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	name := func(content string) string {
		sum := sha256.Sum256([]byte(content))
		return hex.EncodeToString(sum[:])
	}
	for kind, c := range map[string]struct {
		said, sent string
		total      int64
		code       string
	}{
		"as_named":     {said: "some bytes", sent: "some bytes"},
		"empty":        {said: "", sent: ""},
		"other_bytes":  {said: "other bytes", sent: "same bytes!", code: git.CodeLFSObject},
		"too_short":    {said: "more bytes", sent: "more", code: git.CodeLFSObject},
		"too_long":     {said: "few bytes", sent: "few bytes and more", code: git.CodeLFSObject},
		"ME-01_canary": {said: strings.Repeat("x", 40_000) + placeholder, sent: strings.Repeat("x", 40_000) + placeholder, code: quarantine.Canary},
		"too_many":     {said: "too many bytes", sent: "too many bytes", total: 10, code: git.CodePushSize},
	} {
		t.Run(kind, func(t *testing.T) {
			l.at(atStore)
			s := open(t, w, setup{push: pushBranches, total: c.total})
			oid := name(c.said)
			before := l.store.Requests()
			if status, text := s.batch(t, fmt.Sprintf(`{"operation":"upload","ref":{"name":"refs/heads/gatehouse/a"},"objects":[{"oid":%q,"size":%d}]}`, oid, len(c.said))); status != http.StatusOK || !strings.Contains(text, oid+"/verify") {
				t.Fatalf("%d %s", status, text)
			}
			status, code, text := s.send(t, "git.good.test", "PUT", "/acme/shop.git/info/lfs/objects/"+oid, c.sent, http.Header{})
			sent := l.store.Requests() - before
			if c.code == "" && (status != http.StatusOK || sent != 1) || c.code != "" && (code != c.code || sent != 0) {
				t.Errorf("%d %q, %d requests to the store: %s", status, code, sent, text)
			}
			s.stop()
			if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
				t.Errorf("%d files are left behind (%v)", len(left), err)
			}
		})
	}
	for place, format := range map[string]string{"store": atStore, "host": atHost} {
		t.Run("tampered_in_the_"+place, func(t *testing.T) {
			l.at(format)
			oid := l.put("what was stored")
			s := open(t, w, setup{})
			needLFS(t, s)
			dir := s.clone()
			write(t, filepath.Join(dir, "x"), fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 15\n", oid))
			write(t, filepath.Join(dir, ".gitattributes"), "x filter=lfs -text\n")
			s.must(dir, "add", "-A") // a pointer stays one
			s.must(dir, "commit", "-q", "-m", "x")
			l.mu.Lock()
			l.tampered = true
			l.mu.Unlock()
			if out, err := s.git(dir, "-c", "lfs.transfer.maxretries=1", "lfs", "pull"); err == nil {
				t.Errorf("it came in:\n%s", out)
			}
			l.mu.Lock()
			l.tampered = false
			l.mu.Unlock()
			if out, err := s.git(dir, "lfs", "pull"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("words_of_the_host_stay_outside", func(t *testing.T) {
		l.at(atStore)
		s := open(t, w, setup{})
		if _, text := s.batch(t, fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":1}]}`, strings.Repeat("b", 64))); strings.Contains(text, "ghs_no") || !strings.Contains(text, "404") {
			t.Errorf("%s", text)
		}
	})
}
