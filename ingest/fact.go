package ingest

import (
	"slices"
	"strconv"
	"time"

	"gatehouse/internal/event"
)

// Form checks that a value has a closed form and returns it as a string. Only
// what passes a Form becomes a fact.
type Form func(Node) (string, bool)

// Fact is one line of a fact table: the value at Path becomes the fact Name
// when it passes Form. A null or absent value is no fact. A value that fails is
// no fact either and leaves the anomaly "form.<name>".
type Fact struct {
	Name, Path string
	Form       Form
}

// Facts reads the facts of a document.
func Facts(d *Doc, table []Fact) (facts map[string]string, anomalies []string) {
	facts = make(map[string]string, len(table))
	for _, f := range table {
		n := d.At(f.Path)
		if n.Null() {
			continue
		}
		if v, ok := f.Form(n); ok && event.IsClosed(v) {
			facts[f.Name] = v
		} else {
			anomalies = append(anomalies, "form."+f.Name)
		}
	}
	return facts, anomalies
}

// IDs reads the ids of an array of objects under key, at most maxItems.
func IDs(n Node, key string) []string {
	var ids []string
	for i, item := range n.Items() {
		if i == maxItems {
			break
		}
		if id := item.Get(key).ID(); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// FormID admits an id: a non-negative integer or a closed-form string.
func FormID(n Node) (string, bool) {
	id := n.ID()
	return id, id != ""
}

// FormCount admits an integer of at most 18 digits.
func FormCount(n Node) (string, bool) {
	if !n.Exists() || n.v().kind != kindNumber {
		return "", false
	}
	i, err := strconv.ParseInt(string(n.Bytes()), 10, 64)
	return strconv.FormatInt(i, 10), err == nil
}

// FormBool admits true and false.
func FormBool(n Node) (string, bool) {
	if !n.Exists() || n.v().kind != kindTrue && n.v().kind != kindFalse {
		return "", false
	}
	return string(n.Bytes()), true
}

// FormTime admits RFC 3339 and returns it in UTC.
func FormTime(n Node) (string, bool) {
	t, ok := Time(n)
	return t.Format(time.RFC3339Nano), ok
}

// Time reads an RFC 3339 time between the years 2000 and 9999.
func Time(n Node) (time.Time, bool) {
	s, ok := n.Text()
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UTC().Year() < 2000 || t.UTC().Year() > 9999 {
		return time.Time{}, false
	}
	return t.UTC(), true
}

// FormHex returns a Form that admits lower-case hex of one of these lengths.
func FormHex(lengths ...int) Form {
	return func(n Node) (string, bool) {
		s, ok := n.Text()
		return s, ok && slices.Contains(lengths, len(s)) && isHex(s)
	}
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// FormSHA admits a git object id.
var FormSHA = FormHex(40, 64)

// FormUUID admits the text form of a UUID and returns it in lower case.
func FormUUID(n Node) (string, bool) {
	s, ok := n.Text()
	if !ok || len(s) != 36 {
		return "", false
	}
	b := []byte(s)
	for i, c := range b {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return "", false
			}
		case c >= 'A' && c <= 'F':
			b[i] = c + 'a' - 'A'
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return "", false
		}
	}
	return string(b), true
}

// FormEnum returns a Form that admits exactly these strings.
func FormEnum(values ...string) Form {
	return func(n Node) (string, bool) {
		for _, v := range values {
			if n.Is(v) {
				return v, true
			}
		}
		return "", false
	}
}

// FormToken admits a platform's enum without listing it: [a-z0-9_-]{1,64}.
func FormToken(n Node) (string, bool) {
	s, ok := n.Text()
	return s, ok && event.IsToken(s)
}
