package event

import (
	"os"
	"strings"
	"testing"
)

// TestSize: the room that Encode makes is enough for an event without escapes,
// so that it is made once, and not a page too much.
func TestSize(t *testing.T) {
	b, err := os.ReadFile("testdata/event.json")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 64)
	for name, change := range map[string]func(*Event){
		"sample": func(*Event) {},
		"minimal": func(e *Event) {
			e.Facts, e.Lists, e.Text, e.Prov, e.Anomalies, e.Entity = nil, nil, nil, nil, nil, Entity{}
		},
		"long words": func(e *Event) {
			e.Endpoint, e.Kind, e.Action, e.Delivery = long, long, long, long+long
			e.ID = e.Source + ":" + e.Endpoint + ":" + long + long
		},
		"many facts": func(e *Event) {
			for i := range 64 {
				e.Facts[strings.Repeat("f", i+1)], e.Prov["/"+strings.Repeat("p", i+1)] = long, Contributor
			}
		},
		"long text": func(e *Event) {
			for range 64 {
				e.Text = append(e.Text, NewPassage("/a/b", "title", long, Outsider, "12345678"))
			}
		},
		"blob": func(e *Event) { e.Payload, e.Raw = nil, "blob:"+e.BodySHA256 },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			change(e)
			out, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if over := e.size() - len(out); over < 0 || over > 1024 {
				t.Errorf("room for %d bytes was made for %d", e.size(), len(out))
			}
		})
	}
}
