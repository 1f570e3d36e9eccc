package receipts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"gatehouse/receipts"
)

// oneOfEach returns a receipt of every type with every field set.
func oneOfEach() map[receipts.Type]receipts.Receipt {
	h := digest
	exit := int64(137)
	at := time.Date(2026, 11, 14, 10, 0, 0, 123456789, time.UTC)
	change := &receipts.Change{
		Bundle: "fix-failing-ci", Digest: h("new"), Old: h("old"), From: receipts.Shadow, To: receipts.Hard,
		By: "Zoë O'Neill", Via: "ui", Result: "applied", Approvers: 2, Single: true, Enforcer: "acme-dlp",
	}
	cred := &receipts.Credential{
		Name: "github-main", Delivery: "mediated", Host: "api.github.com",
		Scope: map[string]string{"repository.id": "1296269", "access": "read"}, Expires: at, Result: "issued",
	}
	keyEvent := &receipts.KeyEvent{Purpose: "seal", ID: "gatehouse.example/node-1/seal+00112233", Public: h("key"), From: 5, Until: 9}
	disclosure := &receipts.Disclosure{By: "auditor", What: sessionA, Classes: []string{"paths", "refs"}, Digest: h("file")}
	out := &receipts.Out{
		Ref: h("decision"), Effect: "forwarded", Code: "upstream_status", Address: "2001:db8::1",
		Status: 503, Up: 1, Down: 2, Spent: 3_000_000,
	}
	bodies := map[receipts.Type]receipts.Receipt{
		receipts.TypeSessionOpen: {Open: &receipts.Open{
			State: "refused", Code: "no_match", Event: "github:main:72d3162e", EventLeaf: h("event"), Bundle: "fix-failing-ci",
			Digest: h("bundle"), Mode: receipts.Hard, Policy: "credential_free", Provider: "local", Contract: h("contract"),
			Parent: sessionB, Floor: "member", FloorAt: "/issue/títle", Modules: map[string]receipts.Hash{"egress": h("e"), "git": h("g")},
			Sets: map[string]receipts.Hash{"npm": h("npm")}, Points: []string{"door", "git"}, NotSeen: []string{"udp"}, Dev: true,
			Facts: map[string]string{"repository.id": "1", "kind": "workflow_run"}, Unlimited: true, Keyset: h("keyset"),
			Text: "text read later through the door is not rated", Deliveries: []string{"/a~1b", "/c\"d\\e"},
		}},
		receipts.TypeSessionState: {State: &receipts.State{From: "preparing", To: "running", Reason: "probe_passed", Evidence: h("report"), Level: 3}},
		receipts.TypeSessionClose: {Close: &receipts.Close{
			Reason: "failed", Exit: &exit, Count: 12, Verdicts: map[string]uint64{"allow": 3, "deny": 1}, Spent: 1, Unknown: 2,
			Out: map[string]receipts.Hash{"report.md": h("report.md")},
		}},
		receipts.TypeDecision: {
			Act: &receipts.Act{
				ID: "01JCA-1", Kind: "git.push", Scheme: "https", Host: "github.com", Port: 443, Method: "POST", Connection: "github-main",
				Repository: "1296269", Name: "push", Authority: true, Blind: true,
				Args: map[string]receipts.Hash{"path": h("p"), "ref": h("r")}, Units: map[string]uint64{"bytes": 1, "commands": 2},
			},
			Dec: &receipts.Dec{
				Verdict: receipts.Deny, Mode: receipts.Shadow, Passed: true, Fault: "trap", Rule: "git.push.refs[0]", Reason: "ref_not_listed",
				Policy: h("policy"), Module: h("module"), By: "git", Gen: 4, Fuel: 5, Dur: 6, Held: 7, Count: 8, Dev: true,
			},
			In: h("in"),
		},
		receipts.TypeOutcome:          {Out: out},
		receipts.TypeProgress:         {Out: out},
		receipts.TypeHeartbeat:        {Beat: &receipts.Heartbeat{Open: 2, Head: h("root"), Size: 99}},
		receipts.TypeManifest:         {Man: &receipts.ManifestDoc{Size: 16, Heads: h("heads"), Tree: 2, Sessions: 3, Closed: 1, Receipts: 14, Losses: 1}},
		receipts.TypeLoss:             {Loss: &receipts.Loss{Cause: "disk_full", First: 7, Count: 2, Head: h("head")}},
		receipts.TypePolicyChange:     {Change: change},
		receipts.TypeModeChange:       {Change: change},
		receipts.TypeBundleApply:      {Change: change},
		receipts.TypeApproval:         {Change: change},
		receipts.TypeCredentialIssue:  {Cred: cred},
		receipts.TypeCredentialRevoke: {Cred: cred},
		receipts.TypeKeyAdd:           {Key: keyEvent},
		receipts.TypeKeyRetire:        {Key: keyEvent},
		receipts.TypeKeyRevoke:        {Key: keyEvent},
		receipts.TypeExport:           {Disc: disclosure},
		receipts.TypeReveal:           {Disc: disclosure},
	}
	for typ, r := range bodies {
		r.V, r.Type, r.Log, r.Session, r.Epoch, r.T, r.Mono = receipts.Version, typ, origin, sessionA, 1, at, 42
		r.Seq, r.Prev = 5, h("prev")
		if typ == receipts.TypeSessionOpen {
			r.Seq = 0
		}
		r.Obs = &receipts.Obs{Point: "door", Kind: "egress-proxy", Build: h("build"), Level: 3, Mediation: "sole", Contract: h("contract")}
		r.Red = map[string]uint64{"secret": 1}
		r.X = map[string]string{"acme.ticket": "OPS-1", "acme.team": "シェル"}
		bodies[typ] = r
	}
	return bodies
}

func TestEncodeEveryType(t *testing.T) {
	all := oneOfEach()
	if len(all) != 20 {
		t.Fatalf("%d types", len(all))
	}
	for typ, r := range all {
		t.Run(string(typ), func(t *testing.T) {
			b, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if lib, err := jcs.Transform(b); err != nil || !bytes.Equal(lib, b) {
				t.Errorf("the JCS library gives %s, %v", lib, err)
			}
			got, err := receipts.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&r, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSchemaCoversStructs: a field that someone adds to a struct and forgets in
// the schema would be lost in silence. Every field is set in oneOfEach, and
// every set field comes back from Decode (TestEncodeEveryType).
func TestSchemaCoversStructs(t *testing.T) {
	set := map[string]bool{}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			name := path + "." + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
			if v.Field(i).Kind() == reflect.Pointer && !v.Field(i).IsNil() {
				walk(v.Field(i), name)
			}
		}
	}
	for _, r := range oneOfEach() {
		walk(reflect.ValueOf(r), "Receipt")
	}
	for name, ok := range set {
		if !ok {
			t.Errorf("%s is zero in every receipt of oneOfEach", name)
		}
	}
}

// TestEncodeMinimal: every optional field left out.
func TestEncodeMinimal(t *testing.T) {
	w := newWorld(t)
	w.open(sessionB, receipts.Open{State: "refused", Code: "no_match"})
	r := w.fill(sessionB, receipts.Receipt{Type: receipts.TypeSessionClose, Close: &receipts.Close{Reason: "refused", Count: 2}})
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"close":{"count":2,"reason":"refused"},"epoch":1,"log":"gatehouse.example/node-1","mono":2000000,"prev":"` + r.Prev.String() +
		`","seq":1,"session":"01JCB000000000000000000002","t":"2026-11-14T10:00:00.002000000Z","type":"session.close","v":1}`
	if string(b) != want {
		t.Errorf("\n got %s\nwant %s", b, want)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*receipts.Receipt){
		"no type":                func(r *receipts.Receipt) { r.Type = "" },
		"unknown type":           func(r *receipts.Receipt) { r.Type = "takeover" },
		"body of another type":   func(r *receipts.Receipt) { r.Type = receipts.TypeLoss },
		"second body":            func(r *receipts.Receipt) { r.Loss = &receipts.Loss{Cause: "x"} },
		"missing body":           func(r *receipts.Receipt) { r.Dec = nil },
		"version":                func(r *receipts.Receipt) { r.V = 2 },
		"epoch":                  func(r *receipts.Receipt) { r.Epoch = 2 },
		"no log":                 func(r *receipts.Receipt) { r.Log = "" },
		"log with space":         func(r *receipts.Receipt) { r.Log = "a b" },
		"no session":             func(r *receipts.Receipt) { r.Session = "" },
		"session with newline":   func(r *receipts.Receipt) { r.Session = "a\nb" },
		"no prev":                func(r *receipts.Receipt) { r.Prev = receipts.Hash{} },
		"no time":                func(r *receipts.Receipt) { r.T = time.Time{} },
		"seq 0 and not open":     func(r *receipts.Receipt) { r.Seq = 0 },
		"seq above 2^53":         func(r *receipts.Receipt) { r.Seq = 1 << 53 },
		"no observation":         func(r *receipts.Receipt) { r.Obs = nil },
		"level 4":                func(r *receipts.Receipt) { r.Obs.Level = 4 },
		"RC-30 level 3":          func(r *receipts.Receipt) { r.Obs.Contract = receipts.Hash{} },
		"mediation":              func(r *receipts.Receipt) { r.Obs.Mediation = "full" },
		"verdict":                func(r *receipts.Receipt) { r.Dec.Verdict = "maybe" },
		"hard deny that passed":  func(r *receipts.Receipt) { r.Dec.Mode = receipts.Hard },
		"allow that stopped":     func(r *receipts.Receipt) { r.Dec.Verdict, r.Dec.Passed = receipts.Allow, false },
		"kind":                   func(r *receipts.Receipt) { r.Act.Kind = "exec" },
		"negative money":         func(r *receipts.Receipt) { r.Dec.Held = -1 },
		"host with control":      func(r *receipts.Receipt) { r.Act.Host = "a\x1b[31m" },
		"host not ASCII":         func(r *receipts.Receipt) { r.Act.Host = "exämple.com" },
		"rule too long":          func(r *receipts.Receipt) { r.Dec.Rule = strings.Repeat("x", 257) },
		"zero commitment":        func(r *receipts.Receipt) { r.Act.Args["path"] = receipts.Hash{} },
		"label with quote":       func(r *receipts.Receipt) { r.Act.Args[`a"b`] = digest("x") },
		"empty label":            func(r *receipts.Receipt) { r.Act.Args[""] = digest("x") },
		"unit not ASCII":         func(r *receipts.Receipt) { r.Act.Units["é"] = 1 },
		"units above 2^53":       func(r *receipts.Receipt) { r.Act.Units["bytes"] = 1 << 53 },
		"critical extension":     func(r *receipts.Receipt) { r.X = map[string]string{"!acme.x": "1"} },
		"extension unprefixed":   func(r *receipts.Receipt) { r.X = map[string]string{"x": "1"} },
		"extension not composed": func(r *receipts.Receipt) { r.X = map[string]string{"a.x": "e\u0301"} },
		"too many entries": func(r *receipts.Receipt) {
			r.Act.Units = map[string]uint64{}
			for i := range 257 {
				r.Act.Units[fmt.Sprintf("u%d", i)] = uint64(i)
			}
		},
		"too large": func(r *receipts.Receipt) {
			for i := range 100 {
				r.X["a."+strings.Repeat("k", i+1)] = strings.Repeat("v", 1000)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := oneOfEach()[receipts.TypeDecision]
			change(&r)
			if b, err := r.Encode(); err == nil {
				t.Errorf("encoded %.200s", b)
			} else if !errors.Is(err, receipts.ErrSchema) && !errors.Is(err, receipts.ErrUnsupported) {
				t.Errorf("unclassified: %v", err)
			}
		})
	}
}

// TestRoundTrip: whatever values the fields have, either Encode refuses them or
// Decode gives them back and a JCS library agrees with every byte.
func TestRoundTrip(t *testing.T) {
	all := oneOfEach()
	text := rapid.StringN(0, 40, 60)
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]receipts.Type{
			receipts.TypeDecision, receipts.TypeSessionOpen, receipts.TypeOutcome, receipts.TypeManifest, receipts.TypeCredentialIssue,
		}).Draw(t, "type")
		r := all[typ]
		r.Mono = rapid.Uint64().Draw(t, "mono")
		r.T = time.Unix(rapid.Int64Range(-10, 1<<34).Draw(t, "t"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
		r.X = rapid.MapOfN(text, text, 0, 3).Draw(t, "x")
		if r.Act != nil {
			a := *r.Act
			a.Host, a.Units = text.Draw(t, "host"), rapid.MapOfN(text, rapid.Uint64(), 0, 12).Draw(t, "units")
			r.Act = &a
		}
		if r.Open != nil {
			o := *r.Open
			o.FloorAt, o.Deliveries, o.Dev = text.Draw(t, "at"), rapid.SliceOfN(text, 0, 4).Draw(t, "deliveries"), rapid.Bool().Draw(t, "dev")
			r.Open = &o
		}
		if r.Out != nil {
			o := *r.Out
			o.Status, o.Spent = rapid.Int().Draw(t, "status"), rapid.Int64().Draw(t, "spent")
			r.Out = &o
		}
		b, err := r.Encode()
		if err != nil {
			return
		}
		lib, err := jcs.Transform(b)
		if err != nil || !bytes.Equal(lib, b) {
			t.Fatalf("%s: the JCS library gives %s, %v", b, lib, err)
		}
		got, err := receipts.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&r, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzDecode: what Decode accepts is canonical, and encodes to itself.
func FuzzDecode(f *testing.F) {
	for _, r := range oneOfEach() {
		b, err := r.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := receipts.Decode(b)
		if err != nil {
			if !errors.Is(err, receipts.ErrCanonical) && !errors.Is(err, receipts.ErrSchema) && !errors.Is(err, receipts.ErrUnsupported) {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		again, err := r.Encode()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q encodes to %q, %v", b, again, err)
		}
		if lib, err := jcs.Transform(b); err != nil || !bytes.Equal(lib, b) {
			t.Fatalf("%q: the JCS library gives %q, %v", b, lib, err)
		}
		if !json.Valid(b) {
			t.Fatal("not JSON")
		}
	})
}
