package policies

// Effects, as they stand in the output JSON of the ABI.
const (
	allow   = "allow"
	deny    = "deny"
	abstain = "abstain"
)

// Reason codes of the built-in enforcers: a closed list, documented in
// docs/enforcer-abi.md. A deny carries the most telling one: the reason of the
// rule that came closest to allowing the action.
const (
	ReasonListed              = "listed"
	ReasonNotMine             = "not_mine" // abstain: another enforcer's kind
	ReasonHostNotListed       = "host_not_listed"
	ReasonIPLiteral           = "ip_literal"
	ReasonPortNotListed       = "port_not_listed"
	ReasonSchemeNotListed     = "scheme_not_listed"
	ReasonBlindNotListed      = "blind_not_listed" // an uninspected tunnel under a rule that inspects
	ReasonBlindOnly           = "blind_only"       // an inspected action under a tcp or tls passthrough rule
	ReasonConnectionNotListed = "connection_not_listed"
	ReasonMethodNotListed     = "method_not_listed"
	ReasonPathNotListed       = "path_not_listed"
	ReasonEncodedSlash        = "encoded_slash"
	ReasonUpgradeNotListed    = "upgrade_not_listed"
	ReasonNameNotListed       = "name_not_listed"
	ReasonOperationNotListed  = "operation_not_listed"
	ReasonRepositoryNotListed = "repository_not_listed"
	ReasonAccessReadOnly      = "access_read_only"
	ReasonPushNotListed       = "push_not_listed"
	ReasonNoCommands          = "no_commands"
	ReasonRefNotListed        = "ref_not_listed"
	ReasonForceNotAllowed     = "force_not_allowed"
	ReasonDeleteNotAllowed    = "delete_not_allowed"
	ReasonPathDenied          = "path_denied"
	ReasonModelNotListed      = "model_not_listed"
	ReasonMaxTokensExceeded   = "max_tokens_exceeded"
	ReasonBudgetExceeded      = "budget_exceeded"
	ReasonBundleNotListed     = "bundle_not_listed"
	ReasonDepthExceeded       = "depth_exceeded"
	ReasonChildrenExceeded    = "children_exceeded"
	ReasonSpawnNotListed      = "spawn_not_listed"
	ReasonValueNotPresentable = "value_not_presentable" // a value too long to be unescaped for judging
)

// Answer is one verdict with its finished output JSON. Answers are made at
// configure time, or are constants, so that judging allocates nothing.
type Answer struct {
	Effect, Rule, Reason string
	JSON                 []byte // {"reason":...,"rule":...,"verdict":...}
}

// newAnswer renders an answer. Rule and reason need no escaping: rule ids pass
// ruleOK, reasons are constants.
func newAnswer(effect, rule, reason string) *Answer {
	return &Answer{effect, rule, reason, []byte(`{"reason":"` + reason + `","rule":"` + rule + `","verdict":"` + effect + `"}`)}
}

// denials are the answers an enforcer gives when no rule allows, by reason.
type denials []*Answer

func newDenials(rule string, reasons ...string) denials {
	var d denials
	for _, reason := range reasons {
		d = append(d, newAnswer(deny, rule, reason))
	}
	return d
}

// of returns the denial for one of the reasons given to newDenials.
func (d denials) of(reason string) *Answer {
	for _, a := range d {
		if a.Reason == reason {
			return a
		}
	}
	return nil
}

// ruleOK reports whether s can be a rule id.
func ruleOK(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch x := s[i]; {
		case 'a' <= x && x <= 'z', 'A' <= x && x <= 'Z', '0' <= x && x <= '9':
		case x == '.', x == '_', x == '-', x == '[', x == ']', x == '/', x == ':', x == '@':
		default:
			return false
		}
	}
	return true
}
