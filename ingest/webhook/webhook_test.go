package webhook

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	corpus  = "../testdata/corpus/standard-webhooks"
	testKey = "a shared secret of the test sender"
	whsec   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

var now = time.Unix(1614265330, 0)

func secrets(list ...string) []secret.Value {
	var out []secret.Value
	for _, s := range list {
		out = append(out, secret.FromString(s))
	}
	return out
}

func open(t testing.TB, o Options) *Source {
	t.Helper()
	if o.Name == "" {
		o.Name = Name
	}
	if o.Secrets == nil {
		o.Secrets = secrets(testKey)
	}
	if o.Now == nil {
		o.Now = func() time.Time { return now }
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func header(kv ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

// signStandard signs as the specification says.
func signStandard(t testing.TB, key, id, stamp string, body []byte) string {
	t.Helper()
	k, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	m := hmac.New(sha256.New, k)
	m.Write([]byte(id + "." + stamp + "."))
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// IN-26: the published vectors and ours.
func TestVectors(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(corpus, "vectors_v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Name    string            `json:"name"`
			Headers map[string]string `json:"headers"`
			Body    string            `json:"body_utf8"`
			Secrets []string          `json:"secrets"`
			Now     int64             `json:"now_unix"`
			Valid   bool              `json:"expect_valid"`
		} `json:"vectors"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) < 12 {
		t.Fatalf("only %d vectors", len(file.Vectors))
	}
	for _, v := range file.Vectors {
		t.Run("IN-26 "+v.Name, func(t *testing.T) {
			s, err := New(Options{Name: NameStandard, Secrets: secrets(v.Secrets...), Scheme: Standard{}, Now: func() time.Time { return time.Unix(v.Now, 0) }})
			if err != nil {
				if v.Valid {
					t.Error(err)
				}
				return
			}
			h := header()
			for name, value := range v.Headers {
				h.Set(name, value)
			}
			d, err := s.Verify(h, []byte(v.Body))
			if (err == nil) != v.Valid {
				t.Errorf("verified: %v, want %v", err, v.Valid)
			}
			if err == nil && d.ID != v.Headers["webhook-id"] {
				t.Errorf("id %s", d.ID)
			}
		})
	}
}

func TestStandard(t *testing.T) {
	body := []byte(`{"type":"user.created"}`)
	public, private, err := ed25519.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{7}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	whpk := "whpk_" + base64.StdEncoding.EncodeToString(public)
	const id, stamp = "msg_1", "1614265330"
	v1a := "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(id+"."+stamp+"."+string(body))))
	v1 := signStandard(t, whsec, id, stamp, body)
	s := open(t, Options{Name: NameStandard, Scheme: Standard{}, Secrets: secrets(whsec, whpk)})
	tests := map[string]struct {
		h      http.Header
		code   problem.Code
		scheme string
	}{
		"v1":                         {header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", v1), "", "standard-v1"},
		"IN-26 v1a":                  {header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", v1a), "", "standard-v1a"},
		"IN-26 several":              {header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", "v1,AAAA v9,xx "+v1a), "", "standard-v1a"},
		"svix names":                 {header("Svix-Id", id, "Svix-Timestamp", stamp, "Svix-Signature", v1), "", "standard-v1"},
		"both names, one value":      {header("Svix-Id", id, "Svix-Timestamp", stamp, "Svix-Signature", v1, "Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", v1), "", "standard-v1"},
		"both names, two values":     {header("Svix-Id", "msg_2", "Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", v1), problem.Unauthorized, ""},
		"v1a bytes under v1":         {header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", strings.Replace(v1a, "v1a", "v1", 1)), problem.Unauthorized, ""},
		"version left out":           {header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", strings.TrimPrefix(v1, "v1,")), problem.Unauthorized, ""},
		"IN-26 too old":              {header("Webhook-Id", id, "Webhook-Timestamp", "1614265029", "Webhook-Signature", signStandard(t, whsec, id, "1614265029", body)), problem.Stale, ""},
		"plus sign":                  {header("Webhook-Id", id, "Webhook-Timestamp", "+1614265330", "Webhook-Signature", signStandard(t, whsec, id, "+1614265330", body)), problem.Unauthorized, ""},
		"not a number":               {header("Webhook-Id", id, "Webhook-Timestamp", "now", "Webhook-Signature", signStandard(t, whsec, id, "now", body)), problem.Unauthorized, ""},
		"IN-26 full stop in id":      {header("Webhook-Id", "a.b", "Webhook-Timestamp", stamp, "Webhook-Signature", signStandard(t, whsec, "a.b", stamp, body)), problem.Unauthorized, ""},
		"no id, though signed":       {header("Webhook-Timestamp", stamp, "Webhook-Signature", signStandard(t, whsec, "", stamp, body)), "any", ""},
		"right one past the limit":   {header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", strings.Repeat("v1,AAAA ", 16)+v1), problem.Unauthorized, ""},
		"IN-21 control in signed id": {header("Webhook-Id", "a>b", "Webhook-Timestamp", stamp, "Webhook-Signature", signStandard(t, whsec, "a>b", stamp, body)), problem.DeliveryIDMissing, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d, err := s.Verify(tt.h, body)
			switch {
			case tt.code == "any":
				if err != nil && d.ID == "" {
					return
				}
				if err == nil && strings.HasPrefix(d.ID, "r-") {
					return // a delivery of its own
				}
				t.Errorf("delivery %+v, %v", d, err)
			case tt.code == "" && err != nil, tt.code != "" && (err == nil || problem.CodeOf(err) != tt.code):
				t.Errorf("got %v, want %q", err, tt.code)
			case d.Auth.Scheme != tt.scheme:
				t.Errorf("scheme %s, want %s", d.Auth.Scheme, tt.scheme)
			}
		})
	}
	for name, keys := range map[string][]secret.Value{
		"none": nil, "empty": secrets(""), "only prefix": secrets("whsec_"), "short": secrets("whsec_c2hvcnQ="), "not base64": secrets("whsec_*"),
		"public too short": secrets("whpk_c2hvcnQ="), "too long": secrets("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))), "four": secrets(whsec, whsec, whsec, whsec),
	} {
		t.Run("key "+name, func(t *testing.T) {
			if s, err := New(Options{Name: NameStandard, Scheme: Standard{}, Secrets: keys}); s != nil || err == nil {
				t.Error("started")
			}
		})
	}
}

func TestContract(t *testing.T) {
	body := []byte(`{"a":1}`)
	const stamp = "1614265330"
	mac := func(parts string) string {
		m := hmac.New(sha512.New, []byte(testKey))
		m.Write([]byte(parts))
		return hex.EncodeToString(m.Sum(nil))
	}
	t.Run("standard", func(t *testing.T) {
		sourcetest.Verify(t, open(t, Options{Name: NameStandard, Scheme: Standard{}, Secrets: secrets(whsec)}), body, func(b []byte) http.Header {
			return header("Webhook-Id", "m", "Webhook-Timestamp", stamp, "Webhook-Signature", signStandard(t, whsec, "m", stamp, b))
		}, "Webhook-Signature", "Webhook-Timestamp", "Webhook-Id")
	})
	t.Run("hmac over a template", func(t *testing.T) {
		s := open(t, Options{Scheme: HMAC{Header: "X-Sig", Prefix: "v0=", Hash: "sha512", Signed: "v0:{ts}:{id}:{body}", TimeHeader: "X-Time", IDHeader: "X-Id"}})
		sourcetest.Verify(t, s, body, func(b []byte) http.Header {
			return header("X-Time", stamp, "X-Id", "i", "X-Sig", "v0="+mac("v0:"+stamp+":i:"+string(b)))
		}, "X-Sig", "X-Time", "X-Id")
		h := header("X-Time", "1614265029", "X-Id", "i", "X-Sig", "v0="+mac("v0:1614265029:i:"+string(body)))
		if _, err := s.Verify(h, body); problem.CodeOf(err) != problem.Stale {
			t.Errorf("old time: %v", err)
		}
	})
	t.Run("token", func(t *testing.T) {
		s := open(t, Options{Scheme: Token{}})
		for name, h := range map[string]http.Header{"none": header(), "other": header("Authorization", "Bearer x"), "bare": header("Authorization", testKey),
			"basic": header("Authorization", "Basic "+testKey), "longer": header("Authorization", "Bearer "+testKey+"x")} {
			if _, err := s.Verify(h, body); problem.CodeOf(err) != problem.Unauthorized {
				t.Errorf("%s: %v", name, err)
			}
		}
		d, err := s.Verify(header("Authorization", "Bearer "+testKey), body)
		if err != nil || d.Auth.Scheme != "shared-token" || len(d.Auth.Signed) != 0 {
			t.Errorf("delivery %+v, %v", d, err)
		}
	})
}

func TestConfig(t *testing.T) {
	tests := map[string]Options{
		"no scheme":              {Name: Name, Secrets: secrets(testKey)},
		"other name":             {Name: "github", Secrets: secrets(testKey), Scheme: Token{}},
		"SHA-1":                  {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Hash: "sha1"}},
		"body not signed":        {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Signed: "{ts}", TimeHeader: "T"}},
		"unknown part":           {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Signed: "{path}{body}"}},
		"part twice":             {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Signed: "{body}{body}"}},
		"open brace":             {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Signed: "{body"}},
		"time not signed":        {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", TimeHeader: "T"}},
		"signed time not named":  {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Signed: "{ts}{body}"}},
		"signed id not named":    {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{Header: "X", Signed: "{id}{body}"}},
		"no header":              {Name: Name, Secrets: secrets(testKey), Scheme: HMAC{}},
		"short secret":           {Name: Name, Secrets: secrets("short"), Scheme: Token{}},
		"kind of ours":           {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, KindPath: "/type", Kinds: map[string]string{"x": "quarantined"}},
		"kind with a dot":        {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, KindPath: "/type", Kinds: map[string]string{"x": "a.b"}},
		"kinds without a path":   {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Kinds: map[string]string{"x": "y"}},
		"IN-25 unanchored":       {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Path: "/a", Form: "regex", Pattern: "[a-z]+"}}},
		"IN-25 bad pattern":      {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Path: "/a", Form: "regex", Pattern: "^($"}}},
		"IN-25 unknown form":     {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Path: "/a", Form: "text"}}},
		"IN-25 empty enum":       {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Path: "/a", Form: "enum"}}},
		"IN-25 sentence in enum": {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Path: "/a", Form: "enum", Values: []string{"do it"}}}},
		"IN-25 path of many":     {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Path: "/a/*", Form: "integer"}}},
		"IN-25 no path":          {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Facts: []Declared{{Name: "a", Form: "integer"}}},
		"entity is not declared": {Name: Name, Secrets: secrets(testKey), Scheme: Token{}, Entity: "x"},
	}
	for name, o := range tests {
		t.Run(name, func(t *testing.T) {
			if s, err := New(o); s != nil || err == nil || problem.HintOf(err) == "" && name != "other name" {
				t.Errorf("started: %v", err)
			}
		})
	}
}

// IN-25: a declared value is lifted after it has its form, and only then.
func TestDeclared(t *testing.T) {
	s := open(t, Options{Scheme: Token{}, KindPath: "/type", Kinds: map[string]string{"order.paid": "order_paid"}, Entity: "order",
		Facts: []Declared{
			{Name: "order", Path: "/order", Form: "uuid"}, {Name: "amount", Path: "/amount", Form: "integer"}, {Name: "level", Path: "/level", Form: "enum", Values: []string{"low", "high"}},
			{Name: "ref", Path: "/ref", Form: "regex", Pattern: "^[A-Z]{2}-[0-9]+|x$"}, {Name: "at", Path: "/at", Form: "rfc3339"}, {Name: "sha", Path: "/sha", Form: "hex"},
		}})
	build := func(body string) *event.Event {
		return sourcetest.Build(t, s, sourcetest.Payload{Raw: []byte(body)}, ingest.Delivery{ID: "1", JSON: []byte(body)})
	}
	e := build(`{"type":"order.paid","order":"6F9619FF-8B86-D011-B42D-00C04FC964FF","amount":7,"level":"high","ref":"AB-12","at":"2026-11-20T10:00:00+02:00","sha":"` + strings.Repeat("ab", 20) + `","note":"please run this"}`)
	want := map[string]string{"order": "6f9619ff-8b86-d011-b42d-00c04fc964ff", "amount": "7", "level": "high", "ref": "AB-12", "at": "2026-11-20T08:00:00Z", "sha": strings.Repeat("ab", 20)}
	if diff := cmp.Diff(want, e.Facts); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	for _, p := range []string{"/order", "/amount", "/level", "/ref", "/at", "/sha"} {
		if e.OriginAt(p) != event.Platform {
			t.Errorf("%s is %s", p, e.OriginAt(p))
		}
	}
	if e.Kind != "order_paid" || e.OriginAt("/note") != event.Outsider || e.OriginAt("/type") != event.Outsider || e.Entity.ID != want["order"] {
		t.Errorf("kind %s, note %s, type %s, entity %s", e.Kind, e.OriginAt("/note"), e.OriginAt("/type"), e.Entity.ID)
	}
	for name, body := range map[string]string{
		"sentence": `{"level":"high, and run this"}`, "other type": `{"amount":"7"}`, "float": `{"amount":7.5}`, "object": `{"order":{}}`, "newline": `{"ref":"AB-12\n"}`,
		"half of an alternative": `{"ref":"AB-12 and more"}`, "end of an alternative": `{"ref":"anything x"}`, "wrong length": `{"sha":"abcd"}`, "year": `{"at":"0001-01-01T00:00:00Z"}`,
	} {
		t.Run("IN-25 "+name, func(t *testing.T) {
			e := build(body)
			if len(e.Facts) != 0 || len(e.Anomalies) != 1 {
				t.Errorf("facts %v, anomalies %v", e.Facts, e.Anomalies)
			}
			for p, o := range e.Prov {
				if o != event.Outsider {
					t.Errorf("%s is %s", p, o)
				}
			}
			if e.Kind != event.KindUnrecognized {
				t.Errorf("kind %s", e.Kind)
			}
		})
	}
}

func TestCloudEvents(t *testing.T) {
	s := open(t, Options{Scheme: Token{}, IDPath: "/id", KindPath: "/type", Kinds: map[string]string{"com.example.paid": "paid"}})
	structured := []byte(`{"specversion":"1.0","id":"e-1","source":"/x","type":"com.example.paid","data":{"n":1}}`)
	h := header("Authorization", "Bearer "+testKey, "Content-Type", "application/cloudevents+json; charset=utf-8")
	d, err := s.Verify(h, structured)
	if err != nil || d.ID != "e-1" {
		t.Fatalf("structured: %+v, %v", d, err)
	}
	binary := header("Authorization", "Bearer "+testKey, "Ce-Specversion", "1.0", "Ce-Id", "e-1", "Ce-Source", "/x", "Ce-Type", "com.example.paid")
	b, err := s.Verify(binary, []byte(`{"n":1}`))
	if err != nil || b.ID != "e-1" {
		t.Fatalf("binary: %+v, %v", b, err)
	}
	for name, d := range map[string]ingest.Delivery{"structured": d, "binary": b} {
		e := sourcetest.Build(t, s, sourcetest.Payload{Raw: d.JSON}, d)
		if e.Kind != "paid" || e.OriginAt("/type") != event.Outsider || e.OriginAt("/data/n") != event.Outsider {
			t.Errorf("%s: kind %s, type %s, data %s", name, e.Kind, e.OriginAt("/type"), e.OriginAt("/data/n"))
		}
	}
	if _, err := s.Verify(header("Authorization", "Bearer "+testKey, "Content-Type", "application/cloudevents-batch+json"), []byte(`[]`)); problem.CodeOf(err) != problem.ContentType {
		t.Errorf("batch: %v", err)
	}
	t.Run("attributes that no signature covers", func(t *testing.T) {
		s := open(t, Options{Scheme: HMAC{Header: "X-Sig"}, KindPath: "/type", Kinds: map[string]string{"com.example.paid": "paid"}})
		m := hmac.New(sha256.New, []byte(testKey))
		m.Write([]byte(`{"n":1}`))
		h := binary.Clone()
		h.Set("X-Sig", hex.EncodeToString(m.Sum(nil)))
		d, err := s.Verify(h, []byte(`{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if e := sourcetest.Build(t, s, sourcetest.Payload{Raw: d.JSON}, d); e.Kind != event.KindUnrecognized || strings.Contains(string(e.Payload), "com.example") {
			t.Errorf("kind %s, payload %s", e.Kind, e.Payload)
		}
	})
}

func TestDeliveryID(t *testing.T) {
	h := header("Authorization", "Bearer "+testKey, "Idempotency-Key", "k-1")
	body := []byte(`{"id":"b-1"}`)
	tests := map[string]struct {
		o    Options
		want func(string) bool
	}{
		"in the body": {Options{IDPath: "/id"}, func(id string) bool { return id == "b-1" }},
		"in a header": {Options{IDHeader: "Idempotency-Key"}, func(id string) bool { return id == "k-1" }},
		"the body":    {Options{ByBody: true}, func(id string) bool { return id == "" }},
		"of its own":  {Options{}, func(id string) bool { return strings.HasPrefix(id, "r-") && len(id) == 34 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.o.Scheme = Token{}
			d, err := open(t, tt.o).Verify(h, body)
			if err != nil || !tt.want(d.ID) {
				t.Errorf("id %q, %v", d.ID, err)
			}
		})
	}
	for name, o := range map[string]Options{"missing header": {Scheme: Token{}, IDHeader: "X-None"}, "missing field": {Scheme: Token{}, IDPath: "/none"}} {
		if _, err := open(t, o).Verify(h, body); problem.CodeOf(err) != problem.DeliveryIDMissing {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// IN-12: a challenge is repeated to a verified sender and starts nothing.
func TestChallenge(t *testing.T) {
	s := open(t, Options{Scheme: Token{}, Challenge: true})
	h := header("Authorization", "Bearer "+testKey)
	d, err := s.Verify(h, []byte(`{"type":"url_verification","challenge":"abc-123"}`))
	if err != nil || d.Challenge != "abc-123" {
		t.Fatalf("%+v, %v", d, err)
	}
	if e := sourcetest.Build(t, s, sourcetest.Payload{Raw: d.JSON}, d); event.Startable(e.Kind) {
		t.Errorf("IN-12: kind %s", e.Kind)
	}
	if d, err := s.Verify(h, []byte(`{"type":"url_verification","challenge":"<script>"}`)); err != nil || d.Challenge != "" {
		t.Errorf("repeats %q, %v", d.Challenge, err)
	}
}

// IN-27: the legacy plugin of Sentry signs nothing; behind a token all of it is
// outsider's.
func TestLegacySentryPlugin(t *testing.T) {
	p := sourcetest.Read(t, "../testdata/corpus/sentry/legacy_plugin__alert.json")
	s := open(t, Options{Scheme: Token{Header: "X-Token"}})
	if _, err := s.Verify(header(), p.Raw); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("IN-27: verified without a token: %v", err)
	}
	d, err := s.Verify(header("X-Token", testKey), p.Raw)
	if err != nil {
		t.Fatal(err)
	}
	e := sourcetest.Build(t, s, p, d)
	for at, o := range e.Prov {
		if o != event.Outsider {
			t.Errorf("IN-27: %s is %s", at, o)
		}
	}
	if len(e.Text) != 1 || len(e.Facts) != 0 {
		t.Errorf("text %v, facts %v", e.Text, e.Facts)
	}
}

func TestGolden(t *testing.T) {
	s := open(t, Options{Name: NameStandard, Scheme: Standard{}, Secrets: secrets(whsec), KindPath: "/type",
		Kinds: map[string]string{"user.created": "user_created", "invoice.paid": "invoice_paid"},
		Facts: []Declared{{Name: "contact.id", Path: "/data/id", Form: "uuid"}}})
	for _, file := range []string{"user_created.json", "invoice_paid.json", "thin_contact_created.json"} {
		t.Run(file, func(t *testing.T) {
			p := sourcetest.Read(t, filepath.Join(corpus, file))
			e := sourcetest.Build(t, s, p, ingest.Delivery{ID: "msg_1", JSON: p.Raw, Auth: event.Auth{Scheme: "standard-v1", Key: "k1", Signed: []string{"id", "timestamp", "body"}}})
			sourcetest.Golden(t, p.Name, e, *update)
		})
	}
}

func FuzzStandardHeaders(f *testing.F) {
	body := []byte(`{"a":1}`)
	f.Add("m", "1614265330", signStandard(f, whsec, "m", "1614265330", body), body)
	f.Add("a.b", "+1", "v1,AAAA v1a,AAAA", body)
	s := open(f, Options{Name: NameStandard, Scheme: Standard{}, Secrets: secrets(whsec)})
	f.Fuzz(func(t *testing.T, id, stamp, sigs string, body []byte) {
		d, err := s.Verify(header("Webhook-Id", id, "Webhook-Timestamp", stamp, "Webhook-Signature", sigs), body)
		if err != nil {
			return
		}
		sec, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || strconv.FormatInt(sec, 10) != stamp || strings.Contains(id, ".") || !strings.Contains(" "+sigs+" ", " "+signStandard(t, whsec, id, stamp, body)+" ") {
			t.Fatalf("verified %q %q %q over %q: %+v", id, stamp, sigs, body, d)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{body}", "v0:{ts}:{body}", "{id}.{ts}.{body}", "{", "}", "{{body}}", "{body}{body}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := template(s)
		if err != nil {
			return
		}
		got := string(bytes.Join(p.fill("T", "I", []byte("B")), nil))
		want := strings.NewReplacer("{body}", "B", "{ts}", "T", "{id}", "I").Replace(s)
		if got != want {
			t.Fatalf("%q fills to %q, want %q", s, got, want)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	f.Add([]byte(`{"type":"order.paid","id":"x","n":7}`))
	f.Add([]byte(`{"n":"7","type":["order.paid"]}`))
	s := open(f, Options{Scheme: Token{}, KindPath: "/type", Kinds: map[string]string{"order.paid": "order_paid"}, Entity: "id",
		Facts: []Declared{{Name: "id", Path: "/id", Form: "regex", Pattern: "^.*$"}, {Name: "n", Path: "/n", Form: "integer"}}})
	f.Fuzz(func(t *testing.T, raw []byte) { sourcetest.Fuzz(t, s, ingest.Delivery{ID: "d", JSON: raw}) })
}
