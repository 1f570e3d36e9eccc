package ingest_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatehouse/ingest"
	"gatehouse/ingest/github"
	"gatehouse/internal/blob"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/secret"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Fprintln(os.Stderr, serveChild(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const (
	key1 = "the first secret of the test endpoint"
	key2 = "the second secret of the test endpoint"
)

// node is a running intake: a real server on loopback, a real journal and a
// real blob store.
type node struct {
	t      *testing.T
	dir    string
	in     *ingest.Intake
	j      *journal.Journal
	url    string
	client *http.Client
	stop   func()
}

type nodeOptions struct {
	dir       string
	fs        journal.FS
	memory    int64
	segment   int64
	endpoints []ingest.Endpoint
	now       func() time.Time
	log       *slog.Logger
	seen      func(ingest.Observation)
	room      func() error
}

func githubSource(secrets ...string) (ingest.Source, error) {
	var list []secret.Value
	for _, s := range secrets {
		list = append(list, secret.FromString(s))
	}
	return github.New(github.Options{Secrets: list, Commands: github.Commands{Mention: "@gatehouse", Words: []string{"fix"}}})
}

func gh(t testing.TB, secrets ...string) ingest.Source {
	t.Helper()
	s, err := githubSource(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t *testing.T, o nodeOptions) *node {
	t.Helper()
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	if o.endpoints == nil {
		o.endpoints = []ingest.Endpoint{{Name: "main", Source: gh(t, key1, key2)}}
	}
	j, err := journal.Open(filepath.Join(o.dir, "journal"), journal.Options{FS: o.fs, ReserveBytes: 64 << 10, SegmentBytes: o.segment})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(o.dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: o.dir, j: j}
	n.in, err = ingest.New(context.Background(), ingest.Options{Journal: j, Blobs: blobs, Endpoints: o.endpoints, Memory: o.memory, Now: o.now, Log: o.log, Seen: o.seen, Room: o.room})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := ingest.Server(n.in)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	n.url = "http://" + l.Addr().String()
	n.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
	var once sync.Once
	n.stop = func() {
		once.Do(func() {
			n.client.CloseIdleConnections()
			_ = srv.Close()
			<-done
			if err := n.in.Drain(context.Background()); err != nil {
				t.Error(err)
			}
			_ = j.Close()
		})
	}
	t.Cleanup(n.stop)
	return n
}

func sign(key string, body []byte) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// delivery is one GitHub request; empty fields get working values.
type delivery struct {
	endpoint, method, kind, id, key, contentType string
	body                                         []byte
	header                                       map[string][]string // overrides; nil value removes
}

var ids int
var idsMu sync.Mutex

func freshID() string {
	idsMu.Lock()
	defer idsMu.Unlock()
	ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", ids)
}

func (n *node) request(d delivery) *http.Request {
	n.t.Helper()
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&d.endpoint, "main")
	def(&d.method, http.MethodPost)
	def(&d.kind, "issue_comment")
	def(&d.key, key1)
	def(&d.contentType, "application/json")
	if d.id == "" {
		d.id = freshID()
	}
	r, err := http.NewRequest(d.method, n.url+"/hooks/"+d.endpoint, bytes.NewReader(d.body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Content-Type", d.contentType)
	r.Header.Set("X-Github-Event", d.kind)
	r.Header.Set("X-Github-Delivery", d.id)
	r.Header.Set("X-Hub-Signature-256", sign(d.key, d.body))
	for k, v := range d.header {
		r.Header.Del(k)
		for _, x := range v {
			r.Header.Add(k, x)
		}
	}
	return r
}

type reply struct {
	code   int
	header http.Header
	raw    string
	Status string `json:"status"`
	ID     string `json:"id"`
	Code   string `json:"code"`
}

func (n *node) do(r *http.Request) reply {
	n.t.Helper()
	resp, err := n.client.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	a := reply{code: resp.StatusCode, header: resp.Header, raw: string(b)}
	if err := json.Unmarshal(b, &a); err != nil {
		n.t.Fatalf("answer %q: %v", b, err)
	}
	return a
}

func (n *node) send(d delivery) reply { n.t.Helper(); return n.do(n.request(d)) }

// events reads the journal.
func (n *node) events() []*event.Event {
	n.t.Helper()
	var out []*event.Event
	for group, err := range n.j.Groups(0) {
		if err != nil {
			n.t.Fatal(err)
		}
		for _, r := range group {
			if r.Kind != journal.KindEvent {
				continue
			}
			e, err := event.Decode(r.Data)
			if err != nil {
				n.t.Fatal(err)
			}
			if e.Subject() != r.Subject {
				n.t.Errorf("record %d has subject %s, event says %s", r.Pos, r.Subject, e.Subject())
			}
			out = append(out, e)
		}
	}
	return out
}

func corpus(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "corpus", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// answers is the table of reference section 5.5 for requests that store nothing
// or exactly one event.
func TestAnswers(t *testing.T) {
	body := corpus(t, "github/issue_comment__created.json")
	deep := []byte(`{"a":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`)
	form := func(fields ...string) []byte { return []byte(strings.Join(fields, "&")) }
	payload := "payload=" + url.QueryEscape(string(body))
	const formType = "application/x-www-form-urlencoded"
	tests := map[string]struct {
		d     delivery
		code  int
		error string
		kind  string // of the stored event
		odd   string // an anomaly of it
	}{
		"IN-05 accepted":                    {d: delivery{body: body}, code: 200, kind: "issue_comment"},
		"second secret":                     {d: delivery{body: body, key: key2}, code: 200, kind: "issue_comment"},
		"charset parameter":                 {d: delivery{body: body, contentType: "application/json; charset=utf-8"}, code: 200, kind: "issue_comment"},
		"form":                              {d: delivery{body: form(payload), contentType: formType}, code: 200, kind: "issue_comment"},
		"form with two payloads":            {d: delivery{body: form(payload, payload), contentType: formType}, code: 400, error: "ambiguous_form"},
		"form without payload":              {d: delivery{body: form("other=1"), contentType: formType}, code: 400, error: "ambiguous_form"},
		"form with many fields":             {d: delivery{body: form(payload, strings.Repeat("a=1&", 20)), contentType: formType}, code: 400, error: "ambiguous_form"},
		"upper-case hex":                    {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": {"sha256=" + strings.ToUpper(sign(key1, body)[7:])}}}, code: 200, kind: "issue_comment"},
		"wrong signature":                   {d: delivery{body: body, key: "another secret, which nobody set"}, code: 401, error: "unauthorized"},
		"no signature":                      {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": nil}}, code: 401, error: "unauthorized"},
		"two signatures":                    {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": {sign(key1, body), sign(key1, body)}}}, code: 401, error: "unauthorized"},
		"SHA-1 only":                        {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": nil, "X-Hub-Signature": {"sha1=" + strings.Repeat("0", 40)}}}, code: 401, error: "unauthorized"},
		"sha512 in the header":              {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": {strings.Replace(sign(key1, body), "sha256", "sha512", 1)}}}, code: 401, error: "unauthorized"},
		"upper-case scheme":                 {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": {"SHA256=" + sign(key1, body)[7:]}}}, code: 401, error: "unauthorized"},
		"blank before signature":            {d: delivery{body: body, header: map[string][]string{"X-Hub-Signature-256": {"sha256= " + sign(key1, body)[7:]}}}, code: 401, error: "unauthorized"},
		"IN-08 unknown endpoint":            {d: delivery{body: body, endpoint: "nobody"}, code: 401, error: "unauthorized"},
		"get":                               {d: delivery{method: http.MethodGet}, code: 405, error: "method_not_allowed"},
		"get of unknown endpoint":           {d: delivery{method: http.MethodGet, endpoint: "nobody"}, code: 405, error: "method_not_allowed"},
		"gzip":                              {d: delivery{body: body, header: map[string][]string{"Content-Encoding": {"gzip"}}}, code: 415, error: "content_encoding"},
		"gzip to unknown endpoint":          {d: delivery{body: body, endpoint: "nobody", header: map[string][]string{"Content-Encoding": {"gzip"}}}, code: 415, error: "content_encoding"},
		"text":                              {d: delivery{body: body, contentType: "text/plain"}, code: 415, error: "content_type"},
		"no content type":                   {d: delivery{body: body, header: map[string][]string{"Content-Type": nil}}, code: 415, error: "content_type"},
		"no delivery id":                    {d: delivery{body: body, header: map[string][]string{"X-Github-Delivery": nil}}, code: 400, error: "delivery_id_missing"},
		"two delivery ids":                  {d: delivery{body: body, header: map[string][]string{"X-Github-Delivery": {"a", "b"}}}, code: 400, error: "delivery_id_missing"},
		"IN-21 subject in delivery id":      {d: delivery{body: body, id: "a.>.* b"}, code: 400, error: "delivery_id_missing"},
		"many headers":                      {d: delivery{body: body, header: map[string][]string{"X-More": make([]string, 70)}}, code: 431, error: "headers_too_large"},
		"not JSON":                          {d: delivery{body: []byte("{")}, code: 400, error: "bad_json"},
		"empty":                             {d: delivery{body: nil}, code: 400, error: "bad_json"},
		"null":                              {d: delivery{body: []byte("null")}, code: 400, error: "bad_json"},
		"array":                             {d: delivery{body: []byte("[]")}, code: 400, error: "bad_json"},
		"two objects":                       {d: delivery{body: []byte("{}{}")}, code: 400, error: "bad_json"},
		"too deep":                          {d: delivery{body: deep}, code: 400, error: "too_deep"},
		"duplicate keys":                    {d: delivery{body: []byte(`{"action":"a","action":"b"}`)}, code: 200, kind: "quarantined", odd: "twin_keys"},
		"twin keys":                         {d: delivery{body: []byte(`{"action":"a","ACTION":"b"}`)}, code: 200, kind: "quarantined", odd: "twin_keys"},
		"twin keys by escape":               {d: delivery{body: []byte(`{"action":"a","\u0061ction":"b"}`)}, code: 200, kind: "quarantined", odd: "twin_keys"},
		"twin keys by Unicode case":         {d: delivery{body: []byte(`{"k":1,"` + "\u212a" + `":2}`)}, code: 200, kind: "quarantined", odd: "twin_keys"},
		"too many keys":                     {d: delivery{body: manyKeys(20_001)}, code: 200, kind: "quarantined", odd: "too_complex"},
		"byte order mark":                   {d: delivery{body: append([]byte("\xef\xbb\xbf"), body...)}, code: 200, kind: "issue_comment", odd: "bom"},
		"lossy UTF-8":                       {d: delivery{body: bytes.Replace(body, []byte("totally"), []byte("tot\xffally"), 1)}, code: 200, kind: "issue_comment", odd: "lossy_utf8"},
		"kind not bound to body":            {d: delivery{body: body, kind: "workflow_run"}, code: 200, kind: "quarantined", odd: "shape"},
		"issues kind for a comment body":    {d: delivery{body: body, kind: "issues"}, code: 200, kind: "quarantined", odd: "shape"},
		"IN-10 unpublished kind":            {d: delivery{body: []byte(`{"action":"x"}`), kind: "brand_new"}, code: 200, kind: "unrecognized"},
		"IN-21 subject in kind":             {d: delivery{body: []byte(`{"action":"x"}`), kind: "a.>"}, code: 200, kind: "unrecognized"},
		"IN-21 subject in action":           {d: delivery{body: bytes.Replace(body, []byte(`"created"`), []byte(`"a.>.*"`), 1)}, code: 200, kind: "issue_comment", odd: "action"},
		"IN-10 kind unknown to go-github":   {d: delivery{body: corpus(t, "github/sub_issues__sub_issue_added.json"), kind: "sub_issues"}, code: 200, kind: "sub_issues"},
		"IN-12 ping":                        {d: delivery{body: corpus(t, "github/ping__default.json"), kind: "ping"}, code: 200, kind: "ping"},
		"IN-12 app ping without repository": {d: delivery{body: corpus(t, "github/ping__with-organization.json"), kind: "ping"}, code: 200, kind: "ping"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := start(t, nodeOptions{})
			a := n.send(tt.d)
			if a.code != tt.code || a.Code != tt.error {
				t.Errorf("answered %d %s, want %d %s", a.code, a.raw, tt.code, tt.error)
			}
			events := n.events()
			if tt.kind == "" {
				if len(events) != 0 {
					t.Errorf("stored %d events, want none", len(events))
				}
				return
			}
			if len(events) != 1 {
				t.Fatalf("stored %d events, want 1", len(events))
			}
			e := events[0]
			if e.Kind != tt.kind {
				t.Errorf("stored kind %s, want %s", e.Kind, tt.kind)
			}
			if tt.odd != "" && !strings.Contains(strings.Join(e.Anomalies, " "), tt.odd) {
				t.Errorf("anomalies %v, want %s", e.Anomalies, tt.odd)
			}
			if a.ID != e.ID || a.Status != "accepted" {
				t.Errorf("answered %s, event is %s", a.raw, e.ID)
			}
			if e.Kind == event.KindQuarantined && (e.Facts != nil || e.Text != nil || event.Startable(e.Kind)) {
				t.Errorf("a quarantined event holds facts or text: %+v", e)
			}
		})
	}
}

func manyKeys(n int) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"k%d":1`, i)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// IN-08: the answer for an unknown endpoint is the answer for a wrong signature,
// byte for byte.
func TestUnknownEndpointLooksLikeWrongSignature(t *testing.T) {
	n := start(t, nodeOptions{})
	body := corpus(t, "github/issue_comment__created.json")
	wrong := n.send(delivery{body: body, key: "another secret, which nobody set"})
	unknown := n.send(delivery{body: body, endpoint: "nobody"})
	for _, h := range []http.Header{wrong.header, unknown.header} {
		h.Del("Date")
	}
	if wrong.raw != unknown.raw || fmt.Sprint(wrong.header) != fmt.Sprint(unknown.header) {
		t.Errorf("IN-08: %v %s\nwant     %v %s", unknown.header, unknown.raw, wrong.header, wrong.raw)
	}
}

func TestDedupe(t *testing.T) {
	body := corpus(t, "github/issue_comment__created.json")
	other := corpus(t, "github/issue_comment__created_with-installation.json")
	const id = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	tests := map[string]struct {
		second delivery
		status string
		kinds  []string
	}{
		"same id and body":        {delivery{body: body, id: id}, "duplicate", []string{"issue_comment"}},
		"same body under new id":  {delivery{body: body, id: "fresh"}, "duplicate", []string{"issue_comment"}},
		"same id with other body": {delivery{body: other, id: id}, "accepted", []string{"issue_comment", "quarantined"}},
		"other id and body":       {delivery{body: other, id: "fresh"}, "accepted", []string{"issue_comment", "issue_comment"}},
	}
	for name, tt := range tests {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restart=%v", name, restart), func(t *testing.T) {
				n := start(t, nodeOptions{})
				first := n.send(delivery{body: body, id: id})
				if restart {
					// IN-03: what was delivered is a fold of the journal.
					n.stop()
					n = start(t, nodeOptions{dir: n.dir})
				}
				second := n.send(tt.second)
				if second.code != 200 || second.Status != tt.status {
					t.Errorf("answered %d %s, want 200 %s", second.code, second.raw, tt.status)
				}
				if tt.status == "duplicate" && second.ID != first.ID {
					t.Errorf("duplicate of %s, want %s", second.ID, first.ID)
				}
				if !n.in.Known("main", id) || n.in.Known("main", "never-sent") || n.in.Known("nobody", id) {
					t.Error("IN-31: what is known is told wrongly")
				}
				third := n.send(tt.second)
				if third.Status != "duplicate" {
					t.Errorf("third answered %s, want duplicate", third.raw)
				}
				var kinds []string
				for _, e := range n.events() {
					kinds = append(kinds, e.Kind)
				}
				if fmt.Sprint(kinds) != fmt.Sprint(tt.kinds) {
					t.Errorf("stored %v, want %v", kinds, tt.kinds)
				}
			})
		}
	}
}

// IN-31: a quarantined delivery is known, so that nobody asks for it again, after
// a restart too; the same id in another body is still no repetition of it.
func TestKnowsQuarantined(t *testing.T) {
	n := start(t, nodeOptions{})
	twins := []byte(`{"action":"opened","Action":"closed"}`)
	if a := n.send(delivery{body: twins, id: "odd"}); a.code != 200 || a.Status != "accepted" {
		t.Fatalf("answered %d %s", a.code, a.raw)
	}
	for range 2 {
		if !n.in.Known("main", "odd") || n.in.Known("main", "even") {
			t.Error("what is known is told wrongly")
		}
		n.stop()
		n = start(t, nodeOptions{dir: n.dir})
	}
	if a := n.send(delivery{body: corpus(t, "github/issue_comment__created.json"), id: "odd"}); a.Status != "accepted" {
		t.Errorf("answered %s", a.raw)
	}
	var kinds []string
	for _, e := range n.events() {
		kinds = append(kinds, e.Kind)
	}
	if fmt.Sprint(kinds) != "[quarantined issue_comment]" {
		t.Errorf("stored %v", kinds)
	}
}

// The same delivery many times at once is one event.
func TestDedupeAtOnce(t *testing.T) {
	n := start(t, nodeOptions{})
	body := corpus(t, "github/issue_comment__created.json")
	var wg sync.WaitGroup
	answers := make(chan reply, 32)
	for range cap(answers) {
		r := n.request(delivery{body: body, id: "one"})
		wg.Go(func() { answers <- n.do(r) })
	}
	wg.Wait()
	close(answers)
	accepted := 0
	for a := range answers {
		if a.code != 200 {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
		if a.Status == "accepted" {
			accepted++
		}
	}
	if events := n.events(); accepted != 1 || len(events) != 1 {
		t.Errorf("%d accepted, %d stored, want one of each", accepted, len(events))
	}
}

func TestLargePayloadGoesToBlob(t *testing.T) {
	n := start(t, nodeOptions{})
	body := bytes.Replace(corpus(t, "github/issue_comment__created.json"), []byte("You are totally right"),
		[]byte(strings.Repeat("long text ", 80_000)), 1)
	if len(body) < 512<<10 {
		t.Fatalf("body has only %d bytes", len(body))
	}
	if a := n.send(delivery{body: body}); a.code != 200 {
		t.Fatalf("answered %d %s", a.code, a.raw)
	}
	e := n.events()[0]
	name, ok := strings.CutPrefix(e.Raw, "blob:")
	if !ok || e.Payload != nil {
		t.Fatalf("raw %q, payload of %d bytes", e.Raw, len(e.Payload))
	}
	kept, err := os.ReadFile(filepath.Join(n.dir, "blobs", name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, body) {
		t.Errorf("blob differs from the body: %d and %d bytes", len(kept), len(body))
	}
}

// What metrics learn are closed words, whatever a stranger calls an endpoint.
func TestObservations(t *testing.T) {
	var mu sync.Mutex
	var got []string
	n := start(t, nodeOptions{seen: func(o ingest.Observation) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprintf("%s %s %d %s", o.Endpoint, o.Source, o.Status, o.Result))
	}})
	body := corpus(t, "github/issue_comment__created.json")
	for _, d := range []delivery{{body: body}, {body: body}, {body: body, kind: "push", id: "x"}, {body: []byte(`{"a":1,"A":2}`)}, {body: []byte("{}"), kind: "new_one"},
		{body: body, endpoint: "made-up-name"}, {body: body, key: "another secret, which nobody set"}} {
		n.send(d)
	}
	n.stop()
	want := []string{"main github 200 accepted", "main github 200 duplicate", "main github 200 duplicate", "main github 200 quarantined", "main github 200 unrecognized",
		" unknown 401 unauthorized", "main github 401 unauthorized"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("observed\n%q, want\n%q", got, want)
	}
}
