package enforcers

import (
	"testing"

	"gatehouse/receipts"
)

// inspector asks for bodies.
type inspector struct {
	fake
	mode string
	most int
}

func (i *inspector) Body() (string, int) { return i.mode, i.most }

// TestInspector holds what each enforcer is shown to what it asked for.
func TestInspector(t *testing.T) {
	whole := func(n int) Body { return Body{Mode: BodyWhole, Bytes: make([]byte, n)} }
	cases := map[string]struct {
		ask          []*inspector
		mode         string
		most         int
		body         Body
		uninspected  int // index of the enforcer that was not asked, -1 none
		effectAllows bool
	}{
		"nobody_asks":            {[]*inspector{{}}, "", 0, Body{Mode: "head"}, -1, true},
		"no_body":                {[]*inspector{{mode: BodyWhole, most: 4}}, BodyWhole, 4, Body{Mode: "none"}, -1, true},
		"whole":                  {[]*inspector{{mode: BodyWhole, most: 4}}, BodyWhole, 4, whole(4), -1, true},
		"prefix_is_not_whole":    {[]*inspector{{mode: BodyWhole, most: 4}}, BodyWhole, 4, Body{Mode: BodyPrefix, Bytes: make([]byte, 4)}, 0, false},
		"head_is_no_prefix":      {[]*inspector{{mode: BodyPrefix, most: 4}}, BodyPrefix, 4, Body{Mode: "head"}, 0, false},
		"whole_is_a_prefix":      {[]*inspector{{mode: BodyPrefix, most: 4}}, BodyPrefix, 4, whole(2), -1, true},
		"the_most_of_all":        {[]*inspector{{mode: BodyPrefix, most: 9}, {mode: BodyWhole, most: 4}}, BodyWhole, 9, whole(4), -1, true},
		"each_its_own_cap":       {[]*inspector{{mode: BodyWhole, most: 9}, {mode: BodyWhole, most: 4}}, BodyWhole, 9, whole(5), 1, false},
		"no_more_than_a_mebibyt": {[]*inspector{{mode: BodyWhole, most: 1 << 30}}, BodyWhole, 1 << 20, whole(5), -1, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			rec := &log{}
			p := Policy{Enforcers: []Bound{{Enforcer: &fake{name: "egress", verdict: Verdict{Effect: Allow, Rule: "r", Reason: "listed"}}, Mode: receipts.Hard, Builtin: true}}}
			for _, i := range c.ask {
				i.name, i.verdict = "dlp", Verdict{Effect: Abstain}
				p.Enforcers = append(p.Enforcers, Bound{Enforcer: i, Mode: receipts.Hard})
			}
			g := NewGate(GateOptions{Session: "s", Mode: receipts.Hard, Policy: p, Recorder: rec})
			if mode, most := g.Body(); mode != c.mode || most != c.most {
				t.Errorf("the door reads %q up to %d, want %q up to %d", mode, most, c.mode, c.most)
			}
			a := g.Action(HTTPRequest)
			a.HTTP = &HTTP{To: to(t, "https", "a.test:443"), Method: "POST", Path: "/", Body: c.body}
			_, d := g.Decide(t.Context(), a)
			if d.Passed != c.effectAllows {
				t.Errorf("passed %v: %+v", d.Passed, d)
			}
			for i, e := range c.ask {
				if asked := e.calls > 0; asked == (i == c.uninspected) {
					t.Errorf("enforcer %d asked: %v", i, asked)
				}
			}
			if c.uninspected >= 0 && (d.Reason != CodeBodyNotInspected || d.By != "dlp") {
				t.Errorf("%+v", d)
			}
		})
	}
}
