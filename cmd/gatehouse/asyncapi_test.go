package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

// asyncAPI is what docs/api/asyncapi.yaml says, as far as a test can hold it to
// the code.
type asyncAPI struct {
	AsyncAPI string `yaml:"asyncapi"`
	Channels map[string]struct {
		Address  string         `yaml:"address"`
		Params   map[string]any `yaml:"parameters"`
		Messages map[string]ref `yaml:"messages"`
		Stream   string         `yaml:"x-stream"`
		Auditors string         `yaml:"x-auditors"`
	} `yaml:"channels"`
	Operations map[string]struct {
		Channel ref `yaml:"channel"`
	} `yaml:"operations"`
	Components struct {
		Messages map[string]struct {
			Name    string `yaml:"name"`
			Headers ref    `yaml:"headers"`
		} `yaml:"messages"`
		Schemas map[string]schema `yaml:"schemas"`
	} `yaml:"components"`
}

type ref struct {
	Ref string `yaml:"$ref"`
}

// name is the last element of a reference.
func (r ref) name() string { return r.Ref[strings.LastIndexByte(r.Ref, '/')+1:] }

type schema struct {
	Ref        string            `yaml:"$ref"`
	Const      any               `yaml:"const"`
	Enum       []string          `yaml:"enum"`
	Required   []string          `yaml:"required"`
	Properties map[string]schema `yaml:"properties"`
}

func readAsyncAPI(t *testing.T) *asyncAPI {
	t.Helper()
	b, err := os.ReadFile("../../docs/api/asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc := new(asyncAPI)
	if err := yaml.Unmarshal(b, doc); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\$ref: '#/([^']+)'`).FindAllSubmatch(b, -1) {
		var at any
		if err := yaml.Unmarshal(b, &at); err != nil {
			t.Fatal(err)
		}
		for key := range strings.SplitSeq(string(m[1]), "/") {
			next, _ := at.(map[string]any)
			at = next[key]
		}
		if at == nil {
			t.Errorf("nothing at #/%s", m[1])
		}
	}
	return doc
}

// pattern is an address with its parameters as a subject filter.
func pattern(address string) string {
	return regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(address, "*")
}

// TestAsyncAPI: the document names every stream with its subjects, every type of
// receipt, the headers and the auditors' subjects, and nothing else.
func TestAsyncAPI(t *testing.T) {
	doc := readAsyncAPI(t)
	if doc.AsyncAPI != "3.0.0" {
		t.Errorf("version %q", doc.AsyncAPI)
	}
	written := map[string][]string{}
	for name, c := range doc.Channels {
		if c.Stream != "" {
			written[c.Stream] = append(written[c.Stream], pattern(c.Address))
		}
		if want := auditorSubject(c.Stream, name); c.Auditors != want {
			t.Errorf("%s: auditors read %q, want %q", name, c.Auditors, want)
		}
		for _, p := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(c.Address, -1) {
			if c.Params[p[1]] == nil {
				t.Errorf("%s: parameter %s is not described", name, p[1])
			}
		}
	}
	if d := cmp.Diff(declaredSubjects(t), sortedLists(written)); d != "" {
		t.Errorf("streams (-deploy/nats/streams +document):\n%s", d)
	}
	var types []string // one vector of each type
	files, err := filepath.Glob("../../receipts/testdata/vectors/receipts/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".json"); name != "leaves" {
			types = append(types, name)
		}
	}
	if d := cmp.Diff(types, doc.Components.Schemas["receiptType"].Enum); d != "" {
		t.Errorf("receipt types (-vectors +document):\n%s", d)
	}
	for name, s := range doc.Components.Schemas {
		if !strings.HasSuffix(name, "Headers") {
			continue
		}
		for _, h := range slices.Concat(s.Required, slices.Collect(maps.Keys(s.Properties))) {
			if h != receipts.HeaderType && h != receipts.HeaderSeal && h != receipts.HeaderID {
				t.Errorf("%s: there is no header %s", name, h)
			}
		}
	}
	var served map[string]any
	b, err := os.ReadFile("../../docs/api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &served); err != nil {
		t.Fatal(err)
	}
	if address := doc.Channels["receipts"].Address; served["paths"].(map[string]any)[address] == nil {
		t.Errorf("the operator API has no %s", address)
	}
}

// auditorSubject is what an auditor asks for the next message of a stream.
func auditorSubject(stream, channel string) string {
	if stream != bus.Sessions && stream != bus.Audit && stream != bus.Log || channel == "" {
		return ""
	}
	return bus.AuditorAPI + ".CONSUMER.MSG.NEXT." + stream + ".auditor_{name}"
}

// declaredSubjects are those of the streams' declarations, buckets aside. Events
// are declared by a prefix, under which the node writes five words.
func declaredSubjects(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	files, err := filepath.Glob("../../deploy/nats/streams/GATEHOUSE_*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Name     string
			Subjects []string
		}
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		for _, subject := range s.Subjects {
			out[s.Name] = append(out[s.Name], strings.Replace(subject, ".>", ".*.*.*.*.*", 1))
		}
	}
	return sortedLists(out)
}

func sortedLists(m map[string][]string) map[string][]string {
	for _, l := range m {
		slices.Sort(l)
	}
	return m
}

// TestAsyncAPIOfANode: every message and every server-sent event of a real node
// is one that the document has, under a subject that it has.
func TestAsyncAPIOfANode(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: runs a node; TestAsyncAPI compares the document with what is declared")
	}
	t.Parallel()
	doc := readAsyncAPI(t)
	n := newLiveNode(t, "")
	n.start()
	n.settled(n.deliver(quiet(1))...)
	var list struct{ Items []struct{ ID string } }
	if err := n.client.Get(t.Context(), "/v1/sessions", nil, &list); err != nil || len(list.Items) == 0 {
		t.Fatalf("%v %v", list, err)
	}
	body, err := n.client.File(t.Context(), doc.Channels["receipts"].Address, url.Values{"session": {list.Items[0].ID}})
	if err != nil {
		t.Fatal(err)
	}
	var seen, named []string
	for lines := bufio.NewScanner(body); lines.Scan(); {
		if e, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			seen = append(seen, e)
		}
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range doc.Channels["receipts"].Messages {
		named = append(named, doc.Components.Messages[m.name()].Name)
	}
	slices.Sort(seen)
	slices.Sort(named)
	if d := cmp.Diff(named, slices.Compact(seen)); d != "" {
		t.Errorf("server-sent events (-document +node):\n%s", d)
	}
	n.stop()

	b, err := bus.Open(t.Context(), bus.Options{Node: "node-1", Dir: n.path("state", "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	met := map[string]int{}
	for _, stream := range []string{bus.Events, bus.Sessions, bus.Log} {
		for m, err := range b.Read(t.Context(), stream, "", 0) {
			if err != nil {
				t.Fatal(err)
			}
			met[doc.met(t, stream, m)]++
		}
	}
	for _, channel := range []string{"events", "sessions", "control", "log"} {
		if met[channel] == 0 {
			t.Errorf("no message on %s: the test has met nothing", channel)
		}
	}
}

// met returns the channel of a message and fails unless one of its message kinds
// has these headers.
func (doc *asyncAPI) met(t *testing.T, stream string, m bus.Msg) string {
	t.Helper()
	for name, c := range doc.Channels {
		if c.Stream != stream || !regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(pattern(c.Address)), `\*`, `[^.]+`)+"$").MatchString(m.Subject) {
			continue
		}
		for _, kind := range c.Messages {
			if doc.has(doc.Components.Schemas[doc.Components.Messages[kind.name()].Headers.name()], m) {
				return name
			}
		}
		t.Errorf("%s: no message of the channel has these headers: %v", m.Subject, m.Header)
		return name
	}
	t.Errorf("%s is no channel's address", m.Subject)
	return ""
}

// has reports whether a message's headers are exactly those of s.
func (doc *asyncAPI) has(s schema, m bus.Msg) bool {
	for h, p := range s.Properties {
		v := m.Header[h]
		switch {
		case v == "":
			return false
		case p.Const != nil && v != p.Const:
			return false
		case strings.HasSuffix(p.Ref, "/receiptType") && !slices.Contains(doc.Components.Schemas["receiptType"].Enum, v):
			return false
		}
	}
	for h := range m.Header {
		if _, ok := s.Properties[h]; !ok && strings.HasPrefix(h, "Gatehouse-") {
			return false
		}
	}
	return true
}
