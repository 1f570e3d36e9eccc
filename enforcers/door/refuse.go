package door

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// ReceiptHeader names the decision receipt of a request the door answered
// itself.
const ReceiptHeader = "Gatehouse-Receipt"

// Codes of the door's own bounds.
const (
	codeNamesFull = "names_full"
	codeNameRate  = "name_rate"
)

// refusal is the body of an answer the door gives itself: RFC 9457 with
// members of its own.
type refusal struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Rule    string `json:"rule,omitempty"`
	Receipt string `json:"receipt,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// Refuse answers a denied action.
func Refuse(w http.ResponseWriter, d enforcers.Decision) {
	code, hint := Reason(d)
	write(w, refusal{Title: "refused by Gatehouse", Status: statusOf(code), Code: code, Rule: d.Rule, Hint: hint}, d)
}

// Reason returns a denied action's code and the next step of whoever reads it.
func Reason(d enforcers.Decision) (code, hint string) {
	if d.Fault != "" {
		return d.Fault, hints[d.Fault]
	}
	hint, ok := hints[d.Reason]
	if !ok {
		hint = hints[enforcers.CodeNotListed] // a reason of the policy's own
	}
	return d.Reason, hint
}

// Fail answers a permitted action that could not be carried out. err comes
// from upstream.
func Fail(w http.ResponseWriter, d enforcers.Decision, err error) {
	code, hint, status := Failure(err)
	write(w, refusal{Title: "not carried out by Gatehouse", Status: status, Code: code, Rule: d.Rule, Hint: hint}, d)
}

// Failure returns what Fail says of an error, for a mediator whose clients read
// another form.
func Failure(err error) (code, hint string, status int) {
	code = string(problem.CodeOf(err))
	var bad malformed
	if errors.As(err, &bad) {
		code = enforcers.CodeMalformed
	}
	if hint = problem.HintOf(err); hint == "" {
		hint = hints[code]
	}
	return code, hint, statusOf(code)
}

func write(w http.ResponseWriter, r refusal, d enforcers.Decision) {
	r.Type = "about:blank"
	if !d.Receipt.IsZero() {
		r.Receipt = d.Receipt.String()
		w.Header().Set(ReceiptHeader, r.Receipt)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(r.Status)
	b, err := json.Marshal(r)
	if err != nil {
		return // cannot happen: strings and a number
	}
	_, _ = io.WriteString(w, string(b)+"\n")
}

// statusOf maps a code to the status that makes clients do the right thing:
// 403 is final, 5xx may be tried again.
func statusOf(code string) int {
	switch code {
	case enforcers.CodeMalformed, enforcers.CodeBadAuthority, enforcers.CodeBadPath:
		return http.StatusBadRequest
	case enforcers.CodeMisdirected:
		return http.StatusMisdirectedRequest
	case enforcers.CodeUpCap:
		return http.StatusRequestEntityTooLarge
	case enforcers.CodeClientSlow:
		return http.StatusRequestTimeout
	case enforcers.CodeDNS, enforcers.CodeDNSName, enforcers.CodeDNSAnswers, enforcers.CodeConnect,
		enforcers.CodeTLS, enforcers.CodeProtocol, enforcers.CodePeer, enforcers.CodeAnswerCredential, enforcers.CodeAnswerEncoding,
		enforcers.CodeCredential, enforcers.CodeDownCap, string(problem.Internal):
		return http.StatusBadGateway
	case enforcers.CodeTimeout:
		return http.StatusGatewayTimeout
	case enforcers.CodeReceiptUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusForbidden
	}
}

// hints name the next step of whoever reads the refusal. They never repeat
// what was asked for.
var hints = map[string]string{
	enforcers.CodeNotListed:          "Ask the operator to list the host, port, method and path in the bundle's egress rules.",
	enforcers.CodeNeedsAuthority:     "The request would use a credential and no rule allows it; in shadow too that stays closed.",
	enforcers.CodeReceiptUnavailable: "The node cannot write receipts; try again later.",
	enforcers.CodeNameBudget:         "Too many different names under one wildcard rule; ask for the exact names to be listed.",
	enforcers.CodeRevoked:            "The session has ended.",
	enforcers.CodeGeneration:         "The policy changed while the request was under way; send it again.",
	enforcers.CodeIPLiteral:          "Use the host name; an address is let through only by an exact rule.",
	enforcers.CodePort:               "Use port 443, or ask for the port to be listed.",
	enforcers.CodeRelay:              "Hosts that carry data elsewhere are closed unless a rule lists them.",
	enforcers.CodeMalformed:          "Send one well-formed HTTP/1.1 request.",
	enforcers.CodeBadAuthority:       "Use a plain host name of letters, digits, hyphens and dots, and a decimal port.",
	enforcers.CodeBadPath:            "Send the path in its plain form, without dot segments, backslashes or doubled escapes.",
	enforcers.CodeMisdirected:        "Host, TLS server name and the connection's target must name the same place.",
	enforcers.CodeMethodRefused:      "The method is refused everywhere; so is a field that names another one, where a credential would be added.",
	enforcers.CodeUpgradeRefused:     "Switching protocols is refused here; use plain requests.",
	enforcers.CodeAddressNotPublic:   "The name leads to an internal address; ask for it to be listed under addresses.",
	enforcers.CodeAddressNotListed:   "The name leads to an address outside the rule's list.",
	enforcers.CodeMetadata:           "Metadata services are never reachable.",
	enforcers.CodeSpecialName:        "Local names are never reachable through the door.",
	enforcers.CodeLoop:               "The name leads back to the node itself.",
	enforcers.CodeDNS:                "The name could not be resolved outside.",
	enforcers.CodeDNSName:            "The name does not exist outside.",
	enforcers.CodeTLS:                "The server's certificate could not be verified; nothing was sent.",
	enforcers.CodeUpCap:              "The upload is larger than the rule allows.",
	enforcers.CodePlaceholder:        "The placeholder is not one of this session's; use the variable's value as it is.",
	enforcers.CodePlaceholderHost:    "The placeholder is for its own host only.",
	enforcers.CodePlaceholderSpent:   "The placeholder has been used as often as it may be.",
	enforcers.CodePlaceholderPlace:   "Send the placeholder where the credential belongs, in the Authorization header.",
	enforcers.CodeDoorURL:            "The address is not one of this session's, or it has ended; ask again for what redirected to it.",
	enforcers.CodeDoorURLUse:         "Use GET or HEAD on the address as it stands, without a query or a body.",
	enforcers.CodeBodyNotInspected:   "Send the body without an encoding.",
	enforcers.CodeAnswerCredential:   "The answer held a token or a signed URL and was kept outside.",
	enforcers.CodeAnswerEncoding:     "The answer could not be looked into and was kept outside.",
	enforcers.CodeReflected:          "The answer held the credential; the session has ended.",
	enforcers.CodeCredential:         "The credential for this host is not available; tell the operator.",
	enforcers.CodeForeignCredential:  "Send the request without a credential; Gatehouse adds the right one.",
	codeNamesFull:                    "The session has used all its names.",
	codeNameRate:                     "Too many new names in a minute; wait a minute.",
}
