package event_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"gatehouse/internal/event"
)

var update = flag.Bool("update", false, "write the golden files")

func sample() *event.Event {
	return &event.Event{
		ID: "github:main:72d3162e", Source: "github", Endpoint: "main", Kind: "issue_comment", Action: "created",
		EntityPath: "repo/501/issue/11", Time: time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC), Received: time.Date(2026, 11, 20, 10, 0, 1, 0, time.UTC),
		Delivery: "72d3162e", Trust: event.TrustUntrusted, BodySHA256: strings.Repeat("ab", 32), SameSHA256: strings.Repeat("cd", 32),
		Entity: event.Entity{Kind: "issue", ID: "9001", Number: "11", Scope: map[string]string{"repo": "501"}},
		Actor:  event.Actor{ID: "77", Kind: "user", Level: event.Member},
		Auth:   event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}},
		Facts:  map[string]string{"repository.id": "501", "command": "fix"},
		Lists:  map[string][]string{"labels": {"1", "2"}},
		Text: []event.Passage{
			event.NewPassage("/issue/title", "title", "a \"quoted\"\ttitle\x00 <b>", event.Outsider, "88"),
			event.NewPassage("/comment/body", "comment", "@gatehouse fix", event.Member, "77"),
		},
		Prov:      map[string]event.Origin{"/issue/title": event.Outsider, "/comment/body": event.Member, "/action": event.Platform},
		Anomalies: []string{"bom"},
		Payload:   []byte(`{"action":"created","n":1790928930.0,"big":9223372036854775809}`),
	}
}

func TestCodec(t *testing.T) {
	e := sample()
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/event.json", b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/event.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(b)); diff != "" {
		t.Errorf("the canonical form changed (-want +got):\n%s", diff)
	}
	got, err := event.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got, cmp.AllowUnexported(event.Text{})); diff != "" {
		t.Errorf("decoded event differs (-want +got):\n%s", diff)
	}
	h, err := event.ReadHead(b)
	if err != nil {
		t.Fatal(err)
	}
	wantHead := event.Head{ID: e.ID, Source: e.Source, Endpoint: e.Endpoint, Delivery: e.Delivery, BodySHA256: e.BodySHA256, SameSHA256: e.SameSHA256, Received: e.Received}
	if diff := cmp.Diff(wantHead, h); diff != "" {
		t.Errorf("head differs (-want +got):\n%s", diff)
	}
	if want := "gatehouse.v1.events.github.main.issue_comment.created."; !strings.HasPrefix(e.Subject(), want) || len(e.Subject()) != len(want)+64 {
		t.Errorf("subject %s", e.Subject())
	}
}

// IN-20: no byte of the form can change unseen; above all no label.
func TestDecodeIsStrict(t *testing.T) {
	b, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, with string) []byte {
		out := bytes.Replace(b, []byte(old), []byte(with), 1)
		if bytes.Equal(out, b) {
			t.Fatalf("%s is not in the event", old)
		}
		return out
	}
	tests := map[string][]byte{
		"empty":                     nil,
		"white space":               append([]byte(" "), b...),
		"trailing byte":             append(bytes.Clone(b), '\n'),
		"IN-20 raised origin":       replace(`"/issue/title":"outsider"`, `"/issue/title":"member"`),
		"IN-20 raised actor":        replace(`"actorlevel":"member"`, `"actorlevel":"platform"`),
		"unknown origin":            replace(`"origin":"outsider"`, `"origin":"friend"`),
		"credential as text":        replace(`"origin":"outsider"`, `"origin":"credential"`),
		"unknown attribute":         replace(`{"actorlevel"`, `{"aa":1,"actorlevel"`),
		"second key":                replace(`"delivery":"72d3162e"`, `"delivery":"72d3162e","delivery":"72d3162e"`),
		"other case":                replace(`"delivery"`, `"Delivery"`),
		"not UTF-8":                 replace(`quoted`, "qu\xffted"),
		"other escape":              replace(`\u0000`, `\u0000\u0041`),
		"other type":                replace(`gatehouse.github.issue_comment.created.v1`, `gatehouse.github.issue_comment.deleted.v1`),
		"sentence as fact":          replace(`"command":"fix"`, `"command":"fix all"`),
		"blank in an id":            replace(`"id":"9001"`, `"id":"90 01"`),
		"local time":                replace(`10:00:01.000000000Z`, `11:00:01.000000000+01:00`),
		"trust raised without type": replace(`"trust":"untrusted"`, `"trust":"trusted"`),
		"other version":             replace(`"v":1`, `"v":2`),
		"payload not JSON":          replace(`{"action":"created","n"`, `{"action":created,"n"`),
		"empty action in subject":   replace(`"action":"created"`, `"action":"created.>"`),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := event.Decode(in); err == nil {
				t.Errorf("decoded %s", in)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	tests := map[string]func(*event.Event){
		"no id":                     func(e *event.Event) { e.ID = "" },
		"id of another source":      func(e *event.Event) { e.ID = "sentry:main:1" },
		"IN-21 wildcard in kind":    func(e *event.Event) { e.Kind = "a.>" },
		"IN-21 blank in endpoint":   func(e *event.Event) { e.Endpoint = "a b" },
		"IN-21 control in action":   func(e *event.Event) { e.Action = "a\x00" },
		"IN-21 long kind":           func(e *event.Event) { e.Kind = strings.Repeat("a", 65) },
		"sentence in a fact":        func(e *event.Event) { e.Facts["x"] = "do this" },
		"sentence in a list":        func(e *event.Event) { e.Lists["x"] = []string{"do this"} },
		"sentence in a fact's name": func(e *event.Event) { e.Facts["do this"] = "1" },
		"no level":                  func(e *event.Event) { e.Actor.Level = "" },
		"no time":                   func(e *event.Event) { e.Time = time.Time{} },
		"trusted webhook":           func(e *event.Event) { e.Trust = "trusted" },
		"IN-13 credential text":     func(e *event.Event) { e.Text[0].Origin = event.Credential },
		"text not cut":              func(e *event.Event) { e.Text[0].Value = event.NewText(strings.Repeat("a", event.MaxText+1)) },
		"second digest":             func(e *event.Event) { e.SameSHA256 = "cd" },
		"payload and raw":           func(e *event.Event) { e.Raw = "blob:" + e.BodySHA256 },
		"payload not an object":     func(e *event.Event) { e.Payload = []byte(`[]`) },
		"provenance of no pointer":  func(e *event.Event) { e.Prov["issue"] = event.Member },
		"provenance of no origin":   func(e *event.Event) { e.Prov["/issue"] = "friend" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			e := sample()
			change(e)
			if b, err := e.Encode(); err == nil {
				t.Errorf("encoded %s", b)
			}
		})
	}
}

func TestOriginAt(t *testing.T) {
	e := &event.Event{Prov: map[string]event.Origin{
		"/a":           event.Platform,
		"/a/b":         event.Outsider,
		"/a/b/c":       event.Member,
		"/list/*/name": event.Contributor,
		"/list/0/name": event.Member,
		"/list/*":      event.Operator,
		"/x~1y":        event.Reviewed,
	}}
	tests := map[string]struct {
		pointer string
		want    event.Origin
	}{
		"exact":                     {"/a", event.Platform},
		"below a row":               {"/a/z", event.Platform},
		"longest wins":              {"/a/b/c/d", event.Member},
		"shorter is lower":          {"/a/b/x", event.Outsider},
		"IN-20 unknown is outsider": {"/unknown", event.Outsider},
		"root is outsider":          {"", event.Outsider},
		"no pointer":                {"a", event.Outsider},
		"prefix of a name":          {"/ab", event.Outsider},
		"index":                     {"/list/7/name", event.Contributor},
		"literal beats wildcard":    {"/list/0/name", event.Member},
		"wildcard below":            {"/list/7/other", event.Operator},
		"wildcard is an index":      {"/list/name/name", event.Outsider},
		"empty is no index":         {"/list//name", event.Outsider},
		"escaped":                   {"/x~1y", event.Reviewed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := e.OriginAt(tt.pointer); got != tt.want {
				t.Errorf("OriginAt(%q) = %s, want %s", tt.pointer, got, tt.want)
			}
		})
	}
}

func TestJoin(t *testing.T) {
	any := rapid.SampledFrom([]event.Origin{event.Platform, event.Operator, event.Member, event.Reviewed, event.Contributor, event.Outsider,
		event.Derived, event.Credential, "misspelt"})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(any).Draw(t, "origins")
		low := event.Join(list...)
		for _, o := range list {
			if o.Below(low) {
				t.Fatalf("join %s is above %s", low, o)
			}
		}
		if o := any.Draw(t, "one more"); event.Join(low, o) != event.Join(o, low) || low.Below(event.Join(low, o)) {
			t.Fatalf("join of %s and %s rises or depends on the order", low, o)
		}
	})
	if event.Join() != event.Platform {
		t.Error("join of nothing lowers something")
	}
}

// IN-32: what a reader would not see is told, and nothing is removed.
func TestMarks(t *testing.T) {
	tests := map[string]struct {
		text  string
		marks []string
	}{
		"plain":          {"plain\ttext\r\nwith lines", nil},
		"accents":        {"Zürich, 東京", nil},
		"bidi":           {"a\u202eb", []string{"bidi"}},
		"bidi isolate":   {"a\u2066b", []string{"bidi"}},
		"zero width":     {"a\u200bb", []string{"zero_width"}},
		"joiner":         {"a\u200db", []string{"zero_width"}},
		"byte order":     {"a\ufeffb", []string{"zero_width"}},
		"Hangul filler":  {"a\u3164b", []string{"zero_width"}},
		"tags":           {"a\U000e0041", []string{"tag"}},
		"variation":      {"a\U000e0100", []string{"tag"}},
		"comment":        {"a <!-- b -->", []string{"html_comment"}},
		"NUL":            {"a\x00", []string{"control"}},
		"terminal":       {"\x1b[2J", []string{"control"}},
		"C1":             {"a\u009b", []string{"control"}},
		"lossy":          {"a\xff\xfe", []string{"lossy"}},
		"several sorted": {"\u202e\u200b\U000e0041\x00\xff<!--", []string{"bidi", "control", "html_comment", "lossy", "tag", "zero_width"}},
	}
	for name, tt := range tests {
		t.Run("IN-32 "+name, func(t *testing.T) {
			p := event.NewPassage("/x", "x", tt.text, event.Outsider, "")
			if diff := cmp.Diff(tt.marks, p.Marks); diff != "" {
				t.Errorf("marks (-want +got):\n%s", diff)
			}
			if want := strings.ToValidUTF8(tt.text, "\ufffd"); p.Value.Untrusted() != want || p.Cut || p.Len != len(tt.text) {
				t.Errorf("value %q, cut %v, len %d", p.Value.Untrusted(), p.Cut, p.Len)
			}
		})
	}
	t.Run("IN-32 cut on a rune", func(t *testing.T) {
		text := strings.Repeat("a", event.MaxText-1) + "é<!--"
		p := event.NewPassage("/x", "x", text, event.Outsider, "")
		if got := p.Value.Untrusted(); !p.Cut || got != text[:event.MaxText-1] || p.Len != len(text) {
			t.Errorf("cut %v, %d bytes of %d", p.Cut, len(got), p.Len)
		}
		if diff := cmp.Diff([]string{"html_comment"}, p.Marks); diff != "" {
			t.Errorf("marks of what was cut (-want +got):\n%s", diff)
		}
	})
}

func TestSlug(t *testing.T) {
	tests := map[string]struct {
		e    event.Event
		want string
	}{
		"pull request": {event.Event{Entity: event.Entity{Kind: "pull_request", Number: "7"}}, "pr-7"},
		"issue":        {event.Event{Entity: event.Entity{Kind: "issue", Number: "11"}}, "issue-11"},
		"run of one pull request": {event.Event{Entity: event.Entity{Kind: "workflow_run", ID: "1"}, Lists: map[string][]string{"pull_requests": {"7"}},
			Facts: map[string]string{"workflow_id": "5", "branch_hash": "fc613b4d"}}, "pr-7"},
		"run of two": {event.Event{Entity: event.Entity{Kind: "workflow_run", ID: "1"}, Lists: map[string][]string{"pull_requests": {"7", "8"}},
			Facts: map[string]string{"workflow_id": "5", "branch_hash": "fc613b4d"}}, "wf-5-fc613b4d"},
		"number missing": {event.Event{Entity: event.Entity{Kind: "issue", ID: "9"}}, "e-280b71ea106d3d2d"},
		"other":          {event.Event{Entity: event.Entity{Kind: "release", ID: "9"}}, "e-2760975bbdb04a95"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.e.Slug(); got != tt.want {
				t.Errorf("slug %s, want %s", got, tt.want)
			}
		})
	}
}

// FuzzDecode: whatever decodes encodes to the same bytes, and its head agrees.
func FuzzDecode(f *testing.F) {
	b, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"actorlevel":"member","data":{},"datacontenttype":""}`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		h, headErr := event.ReadHead(in)
		e, err := event.Decode(in)
		if err != nil {
			return
		}
		out, err := e.Encode()
		if err != nil || !bytes.Equal(out, in) {
			t.Fatalf("%v: %s\nbecame %s", err, in, out)
		}
		if headErr != nil || h.ID != e.ID || h.BodySHA256 != e.BodySHA256 || !h.Received.Equal(e.Received) {
			t.Fatalf("head %+v, %v, of %s", h, headErr, in)
		}
		if !json.Valid(in) {
			t.Fatalf("not JSON: %s", in)
		}
	})
}

// FuzzPassage: no text breaks the form.
func FuzzPassage(f *testing.F) {
	f.Add("plain")
	f.Add("\u202e\x00\xff\U000e0041")
	f.Add(strings.Repeat("é", event.MaxText))
	f.Fuzz(func(t *testing.T, text string) {
		e := sample()
		e.Text = []event.Passage{event.NewPassage("/x", "x", text, event.Outsider, "")}
		b, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := event.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, again, cmp.AllowUnexported(event.Text{})); diff != "" {
			t.Fatal(diff)
		}
	})
}
