package telemetry

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
)

// rewritten is a message that may be sent.
type rewritten struct {
	body    []byte // plain; nil when nothing is left of it
	kind    string // content type
	zipped  bool   // sent packed, as it came
	dropped int    // bytes of parts that were taken out
}

// read reads the message whole and unpacks it. ME-21: what unpacks to far more
// than it is, is not unpacked further.
func (x *message) read() ([]byte, string) {
	b, err := io.ReadAll(io.LimitReader(x.r.Body, maxPacked+1))
	switch {
	case err != nil:
		return nil, CodeBody
	case len(b) > maxPacked:
		return nil, CodeSize
	}
	encoding := x.r.Header["Content-Encoding"]
	switch {
	case len(encoding) == 0 || len(encoding) == 1 && encoding[0] == "identity":
		return b, ""
	case len(encoding) > 1 || !strings.EqualFold(encoding[0], "gzip"):
		return nil, CodeBody
	}
	most := int64(maxPlain)
	if r := int64(len(b)) * maxRatio; r < most {
		most = max(r, ratioFrom)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, CodeBody
	}
	plain, err := io.ReadAll(io.LimitReader(z, most+1))
	switch {
	case int64(len(plain)) > most:
		return nil, CodeSize
	case err != nil:
		return nil, CodeBody
	}
	return plain, ""
}

// rewrite takes a message apart and puts it together again as it may leave.
func (x *message) rewrite(plain []byte) (*rewritten, string) {
	out := &rewritten{zipped: len(x.r.Header["Content-Encoding"]) > 0}
	ids := identity{x.m.o.Session, x.m.o.Bundle}
	var code string
	kind := mediaType(x.r)
	switch {
	case x.rt.format == ingestion && kind == jsonType:
		out.kind = jsonType
		out.body, code = ids.ingestion(plain)
	case x.rt.format == envelope: // browsers' transports name text/plain
		out.kind = envelopeType
		out.body, out.dropped, code = ids.envelope(plain, x.s)
	case x.rt.format == otlpAny && kind == protobufType:
		x.rt.format, out.kind = otlpProtobuf, protobufType
		out.body, code = ids.protobuf(x.rt.signal, plain)
	case x.rt.format == otlpAny && kind == jsonType:
		x.rt.format, out.kind = otlpJSON, jsonType
		out.body, code = ids.json(x.rt.signal, plain)
	default:
		code = CodeBody
	}
	if code == "" && marked(out.body) {
		code = CodeSecret
	}
	return out, code
}

// pack returns a message as it is sent.
func (x *message) pack(out *rewritten) ([]byte, error) {
	if !out.zipped {
		return out.body, nil
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(out.body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// credentialForms are credentials by the marks that their makers put on them,
// and Gatehouse's own placeholders: whoever sends those has read the
// environment into a report. Each is found by how it begins.
var credentialForms = []struct {
	begins string
	form   *regexp.Regexp
}{
	{"ghp_", token}, {"gho_", token}, {"ghu_", token}, {"ghs_", token}, {"ghr_", token}, {"github_pat_", token},
	{"glpat-", token}, {"ya29.", token},
	{"sk-", regexp.MustCompile(`^sk-(?:(?:ant|lf|proj|or|svcacct)-[A-Za-z0-9_-]{12}|[A-Za-z0-9]{20})`)}, // not "task-with-a-long-name"
	{"xox", regexp.MustCompile(`^xox[abeoprs]-[A-Za-z0-9-]{10}`)},
	{"AKIA", regexp.MustCompile(`^AKIA[0-9A-Z]{16}`)},
	{"AIza", regexp.MustCompile(`^AIza[A-Za-z0-9_-]{35}`)},
	{"eyJ", regexp.MustCompile(`^eyJ[A-Za-z0-9_-]{10,300}\.eyJ[A-Za-z0-9_-]{10}`)},
	{"-----BEGIN ", regexp.MustCompile(`^-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----`)},
	{placeholderPrefix, regexp.MustCompile(`^gatehouse_ph_[A-Z2-7]{26}`)},
}

var token = regexp.MustCompile(`^[a-z0-9_]+[._-][A-Za-z0-9_.-]{16}`)

// longest is how far a form is looked at.
const longest = 400

// marked reports whether something in b is marked as a credential: a tripwire,
// not a wall.
func marked(b []byte) bool {
	for _, c := range credentialForms {
		for rest := b; ; {
			i := bytes.Index(rest, []byte(c.begins))
			if i < 0 {
				break
			}
			rest = rest[i:]
			if c.form.Match(rest[:min(len(rest), longest)]) {
				return true
			}
			rest = rest[len(c.begins):]
		}
	}
	return false
}

// identity is what a report says of its session, whatever it said before.
type identity struct{ session, bundle string }

// Names that only Gatehouse gives.
const (
	sessionName = "gatehouse.session.id"
	bundleName  = "gatehouse.bundle"
)

// reserved reports whether a name is Gatehouse's to give: who the session is,
// and whether a trace is shown to the public.
func reserved(name string) bool {
	switch name {
	case "session.id", "langfuse.session.id", "langfuse.trace.public":
		return true
	}
	return strings.HasPrefix(name, "gatehouse.")
}

// parse decodes one JSON value within bounds and refuses a key that stands
// twice: two readers could take either.
func parse(b []byte) (any, error) {
	p := &parser{d: json.NewDecoder(bytes.NewReader(b))}
	p.d.UseNumber()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

type parser struct {
	d     *json.Decoder
	parts int
}

func (p *parser) value(depth int) (any, error) {
	if p.parts++; p.parts > maxItems || depth > maxDepth {
		return nil, errors.New("too many parts")
	}
	t, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		m := map[string]any{}
		for p.d.More() {
			k, err := p.d.Token()
			if err != nil {
				return nil, err
			}
			key := k.(string) // the decoder allows no other key
			if _, twice := m[key]; twice {
				return nil, errors.New("a key stands twice")
			}
			if m[key], err = p.value(depth + 1); err != nil {
				return nil, err
			}
		}
		_, err = p.d.Token()
		return m, err
	case json.Delim('['):
		list := []any{}
		for p.d.More() {
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = p.d.Token()
		return list, err
	}
	return t, nil
}

// object decodes one JSON object.
func object(b []byte) (map[string]any, bool) {
	v, err := parse(b)
	m, ok := v.(map[string]any)
	return m, err == nil && ok
}

// encode writes JSON without the escapes that only pages need.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
