package webhook

import (
	"regexp"
	"strings"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// Declared is a path that the operator knows to hold a closed form. It is the
// only way up: a value that has the form becomes a fact of origin platform, any
// other stays outsider's text (IN-25).
type Declared struct {
	Name string // of the fact
	Path string // RFC 6901
	Form string // enum | integer | uuid | hex | rfc3339 | regex
	// Values are the members of an enum.
	Values []string
	// Pattern is the regular expression, anchored by ^ and $.
	Pattern string
}

func (d Declared) form() (ingest.Form, error) {
	bad := func(msg, hint string) error {
		return problem.New(problem.ConfigInvalid, "declared fact "+d.Name+": "+msg, hint)
	}
	if !event.IsClosed(d.Name) || d.Path == "" || d.Path[0] != '/' || strings.Contains(d.Path, "*") {
		return nil, bad("needs a name and the pointer of one value", `Write for example {name: order.id, path: /data/order/id, form: integer}.`)
	}
	switch d.Form {
	case "enum":
		for _, v := range d.Values {
			if !event.IsClosed(v) {
				return nil, bad("an enum value holds blanks or quotes", "A fact is an id, an enum or a number, never a sentence.")
			}
		}
		if len(d.Values) == 0 {
			return nil, bad("an enum has no values", "List them in values.")
		}
		return ingest.FormEnum(d.Values...), nil
	case "integer":
		return ingest.FormCount, nil
	case "uuid":
		return ingest.FormUUID, nil
	case "hex":
		return ingest.FormHex(16, 24, 32, 40, 64), nil
	case "rfc3339":
		return ingest.FormTime, nil
	case "regex":
		return pattern(d.Pattern, bad)
	}
	return nil, bad("unknown form "+d.Form, "Use enum, integer, uuid, hex, rfc3339 or regex.")
}

func pattern(p string, bad func(msg, hint string) error) (ingest.Form, error) {
	if !strings.HasPrefix(p, "^") || !strings.HasSuffix(p, "$") {
		return nil, bad("a pattern is not anchored", "Begin it with ^ and end it with $.")
	}
	// \A and \z, because ^ and $ could be inside an alternative.
	re, err := regexp.Compile(`\A(?:` + p + `)\z`)
	if err != nil {
		return nil, bad("a pattern is not a regular expression", "It is Go's syntax (RE2).")
	}
	return func(n ingest.Node) (string, bool) {
		s, ok := n.Text()
		return s, ok && re.MatchString(s)
	}, nil
}
