package review

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// Trace explains one decision, rule by rule.
type Trace struct {
	Receipt  view.Receipt    `json:"receipt"`
	Sentence string          `json:"sentence" doc:"what was decided and why, in words made of the bundle's and the node's own terms"`
	Steps    []RuleStep      `json:"steps" doc:"the bundle's rules in order; empty when no rule could have decided"`
	Needs    []string        `json:"needs" doc:"what would have to be true for this to be allowed"`
	Digest   string          `json:"digest" doc:"bundle version that was judged by"`
	Group    string          `json:"group,omitempty" doc:"the group that it belongs to, unless it was allowed"`
	Action   json.RawMessage `json:"action,omitempty" doc:"what was judged, without bodies and values: the client chose these words; absent when no longer kept"`
}

// RuleStep is one rule's part.
type RuleStep struct {
	Rule    string   `json:"rule"`
	Text    string   `json:"text" doc:"the rule as the bundle has it"`
	Matches bool     `json:"matches"`
	Lacks   []string `json:"lacks" doc:"what the rule admits and the action is not"`
}

// Explain traces the decision with a number, or a leaf hash, of a session.
func (r *Review) Explain(ctx context.Context, session, which string) (Trace, error) {
	row, err := r.o.View.Session(session)
	if err != nil {
		return Trace{}, err
	}
	for d, err := range r.o.View.Decisions(ctx, session) {
		if err != nil {
			return Trace{}, err
		}
		if d.Leaf == which || fmt.Sprint(d.Receipt.Seq) == which {
			return r.explain(ctx, row, d)
		}
	}
	return Trace{}, problem.New(problem.NotFound, "the session has no decision "+which, "list its receipts; only decisions can be explained")
}

func (r *Review) explain(ctx context.Context, s view.Session, d view.Decided) (Trace, error) {
	dec := d.Receipt.Dec
	t := Trace{Receipt: d.Row, Steps: []RuleStep{}, Needs: []string{}, Digest: hex.EncodeToString(dec.Policy[:])}
	action, err := r.o.Actions(ctx, d.Leaf)
	if err == nil {
		t.Action = action
	}
	if d.Row.Verdict != receipts.CountAllow {
		t.Group = view.GroupOf(s.Bundle, d.Receipt, action).ID
	}
	t.Sentence = sentence(d.Row)
	raw, err := r.o.Bundles.Version(t.Digest)
	if err != nil {
		t.Needs = append(t.Needs, "this node no longer has the bundle version, so its rules cannot be shown")
		return t, nil
	}
	b, err := bundle.Parse(raw)
	if err != nil {
		return Trace{}, err
	}
	at := targetOf(d.Receipt.Act, action)
	switch at.kind {
	case "net.connect", "http.request", "dns.query":
		for _, x := range rules(b, r.o.Sets) {
			lacks := x.lacks(at)
			t.Steps = append(t.Steps, RuleStep{Rule: x.id, Text: text(x), Matches: len(lacks) == 0, Lacks: append([]string{}, lacks...)})
		}
	}
	if d.Row.Verdict != receipts.CountAllow {
		t.Needs = append(t.Needs, needs(d.Row, at, t.Steps)...)
	}
	return t, nil
}

func targetOf(act *receipts.Act, action []byte) target {
	t := target{kind: act.Kind, scheme: act.Scheme, host: act.Host, port: int(act.Port), method: act.Method}
	var a struct {
		HTTP *struct {
			Path string `json:"path"`
		} `json:"http_request"`
	}
	if json.Unmarshal(action, &a) == nil && a.HTTP != nil {
		t.path = a.HTTP.Path
	}
	return t
}

func text(r rule) string {
	parts := []string{r.host}
	if len(r.e.Ports) > 0 {
		parts = append(parts, "port "+join(r.e.Ports))
	}
	if len(r.e.Methods) > 0 {
		parts = append(parts, strings.Join(r.e.Methods, " "))
	}
	if len(r.e.Paths) > 0 {
		parts = append(parts, strings.Join(r.e.Paths, " "))
	}
	return strings.Join(parts, ", ")
}

func sentence(r view.Receipt) string {
	what := r.Kind
	if r.Target != "" {
		what += " to " + r.Target
	}
	if r.Method != "" {
		what = r.Method + " to " + r.Target
	}
	by := "no enforcer allowed it"
	if r.By != "" {
		by = "enforcer " + r.By + " decided by rule " + r.Rule
	} else if r.Rule != enforcers.RuleDefault {
		by = "rule " + r.Rule + " decided"
	}
	switch r.Verdict {
	case receipts.CountAllow:
		return fmt.Sprintf("%s was allowed: %s", what, by)
	case receipts.CountWouldBlock:
		return fmt.Sprintf("%s would have been refused in hard mode: %s (%s); in shadow mode it passed", what, by, r.Reason)
	case receipts.CountFault:
		return fmt.Sprintf("an enforcer failed on %s: %s", what, r.Fault)
	}
	return fmt.Sprintf("%s was refused: %s (%s)", what, by, r.Reason)
}

// needs words what would have to be true, from the rule that comes nearest.
func needs(r view.Receipt, t target, steps []RuleStep) []string {
	if why, ok := closed[r.Reason]; ok {
		return []string{why}
	}
	near := slices.IndexFunc(steps, func(s RuleStep) bool {
		return !s.Matches && len(s.Lacks) > 0 && !strings.HasPrefix(s.Lacks[0], "host ")
	})
	if near >= 0 {
		return []string{fmt.Sprintf("rule %s would have to admit it; it has %s", steps[near].Rule, strings.Join(steps[near].Lacks, " and "))}
	}
	if slices.ContainsFunc(steps, func(s RuleStep) bool { return s.Matches }) {
		return []string{"a rule lists it; what refused it is " + r.Reason}
	}
	if t.host != "" {
		return []string{"a rule would have to list the host " + t.host}
	}
	return []string{"the bundle would have to list it"}
}

// closed are refusals that no rule opens, with the reason in words.
var closed = map[string]string{
	enforcers.CodeMetadata:         "nothing: metadata services are closed in every mode",
	enforcers.CodeSpecialName:      "nothing: the name never leaves the host or the link",
	enforcers.CodeAddressNotPublic: "the name would have to resolve to public addresses, or the rule list its internal prefix under addresses",
	enforcers.CodeRelay:            "an exact rule would have to list the host; it exists to carry data elsewhere, so think twice",
	enforcers.CodeIPLiteral:        "an exact rule would have to list the address; better, use its name",
	enforcers.CodeNeedsAuthority:   "the bundle would have to grant the authority that it uses: in shadow mode too no credential goes where no rule allows it",
	enforcers.CodeMalformedAction:  "nothing: the request was not well formed",
	enforcers.CodeSessionMismatch:  "nothing: it named another session",
	enforcers.CodeRevoked:          "the session had ended",
	enforcers.CodeNameBudget:       "the wildcard rule would have to admit more names in one session (names)",
}
