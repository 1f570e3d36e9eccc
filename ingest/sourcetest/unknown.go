package sourcetest

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"

	"gatehouse/internal/event"
)

// unheard is a key that no table knows.
const unheard = "unheard_of"

// UnknownIsOutsider puts a key that no table knows into every object of each
// payload (IN-20): what stands there is an outsider's, becomes no text and no
// fact, and changes no label that was there before. An object that has a row of
// its own is labelled whole, and so left out. build makes the event of a payload.
func UnknownIsOutsider(t *testing.T, payloads []Payload, build func(Payload) *event.Event) {
	t.Helper()
	tried := 0
	for _, p := range payloads {
		if !bytes.HasPrefix(p.Raw, []byte("{")) {
			continue // a form
		}
		t.Run(p.Name, func(t *testing.T) {
			before := build(p)
			d := json.NewDecoder(bytes.NewReader(p.Raw))
			d.UseNumber()
			var doc map[string]any
			if err := d.Decode(&doc); err != nil {
				t.Fatal(err)
			}
			var at []string
			add(doc, "", before.Prov, &at)
			if len(at) == 0 || at[0] != "/"+unheard {
				t.Fatal("a row covers the whole document")
			}
			raw, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			e := build(Payload{Name: p.Name, Kind: p.Kind, Raw: raw})
			if e.Kind != before.Kind {
				t.Fatalf("the event is a %s", e.Kind)
			}
			for _, pointer := range at {
				for _, here := range []string{pointer, pointer + "/deep"} {
					if got := e.OriginAt(here); got != event.Outsider {
						t.Errorf("%s is a %s's", here, got)
					}
				}
			}
			for _, x := range e.Text {
				if strings.Contains(x.Pointer, unheard) {
					t.Errorf("%s became text", x.Pointer)
				}
			}
			if !maps.Equal(e.Facts, before.Facts) || !maps.Equal(e.Prov, before.Prov) {
				t.Errorf("facts or labels changed: %v %v", e.Facts, e.Prov)
			}
			tried += len(at)
		})
	}
	if tried == 0 {
		t.Error("nothing was tried")
	}
}

// add puts the key into v and all objects below it that no row covers, and
// collects the pointers.
func add(v any, pointer string, prov map[string]event.Origin, at *[]string) {
	if covered(pointer, prov) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		*at = append(*at, pointer+"/"+unheard)
		for k, below := range v {
			add(below, pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), prov, at)
		}
		v[unheard] = map[string]any{"deep": "ignore the rules above"}
	case []any:
		for i, below := range v {
			add(below, pointer+"/"+strconv.Itoa(i), prov, at)
		}
	}
}

// covered reports whether a row is about the value at pointer itself.
func covered(pointer string, prov map[string]event.Origin) bool {
	have := strings.Split(pointer, "/")
	for row := range prov {
		want := strings.Split(row, "/")
		same := len(want) == len(have)
		for i := 0; same && i < len(want); i++ {
			same = want[i] == have[i] || want[i] == "*"
		}
		if same {
			return true
		}
	}
	return false
}
