package git

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/gatekeeper/sandbox/quarantine"
)

// hints are for people who read what git prints.
var hints = map[string]string{
	"repository_not_listed":          "this session is for its own repository and the siblings that its bundle names",
	"connection_not_listed":          "this session is for another host",
	"access_read_only":               "this repository may be fetched, not pushed",
	"push_not_listed":                "this session may not push",
	"ref_not_listed":                 "push to a ref that the bundle lists under git.push.refs",
	"force_not_allowed":              "the push would lose commits; merge or rebase onto what is there",
	"delete_not_allowed":             "this session may not delete refs",
	"path_denied":                    "the push changes a path that this session may not change",
	CodeDumb:                         "only the smart protocol is spoken here: use git 1.6.6 or newer",
	CodePush:                         "the push asks for something that is not passed on",
	CodePushSize:                     "the push is larger than it may be",
	CodeInspection:                   "the objects of the push could not be inspected: tell the operator",
	quarantine.Broken:                "an object of the push is damaged or dangerous (git fsck)",
	quarantine.TooMany:               "the push holds too many objects or paths",
	quarantine.TooLarge:              "an object of the push, or all of them, are too large unpacked",
	quarantine.TooDeep:               "the pack holds deltas upon deltas beyond what git writes",
	quarantine.Colliding:             "two names in one folder differ only in case or in how accents are written",
	quarantine.Missing:               "an object of the push is missing",
	quarantine.Canary:                "the push holds a value that stands for a credential",
	quarantine.Unfit:                 "a branch must point at a commit, and so must a tag in the end",
	quarantine.Unheld:                "the push builds on many commits that are on no branch of the repository: build on a branch, or have a person push those first",
	CodeLFS:                          "the request asks Git LFS for something that is not passed on",
	CodeLFSLocks:                     "there is no locking here: git config lfs.locksverify false",
	CodeLFSHref:                      "the host points to a place that is not one of its stores: ask the operator to list it under the connection's stores",
	CodeLFSObject:                    "the bytes of a large file are not what its name says",
	CodeLFSMoved:                     "the host keeps the object elsewhere and redirects there, which is not followed: ask the operator to let the host hand it out itself (on GitLab, proxy_download)",
	CodeLFSAsked:                     "ask for the object by git lfs first",
	CodeLFSClosed:                    "this node carries no large files",
	CodeAPIPlace:                     "the API answers here only about the session's repositories; see scm.run.logs for logs",
	CodeAPIRepository:                "the session may not read this repository",
	CodeAPIWrite:                     "changes are made by git push and by operations: GET http://gatehouse.internal/agent/v1/operations",
	CodeGraphQL:                      "one query about one repository that the session may read; pull requests are opened by scm.pr.create",
	CodeGraphQLStatic:                "GraphQL is closed under a credential that may reach other repositories: use git and the REST API, or ask the operator for a GitHub App",
	CodeUnlistedQ:                    "the request asks for something that is not passed on",
	enforcers.CodeMalformed:          "the request could be read in two ways",
	enforcers.CodeForeignCredential:  "send no credential; Gatehouse adds the right one",
	enforcers.CodeNeedsAuthority:     "no rule allows it, and in shadow too it stays closed",
	enforcers.CodeReceiptUnavailable: "the node cannot write receipts; try again later",
}

// refuse answers a denied git request. Git prints a text/plain body after
// "remote:"; the status says that trying again is no use.
func refuse(w http.ResponseWriter, d enforcers.Decision) {
	status := http.StatusForbidden
	switch d.Reason {
	case enforcers.CodeMalformed:
		status = http.StatusBadRequest
	case enforcers.CodeReceiptUnavailable:
		status = http.StatusServiceUnavailable
	}
	say(w, status, d, words(d))
}

// fail answers a permitted git request that could not be carried out.
func fail(w http.ResponseWriter, d enforcers.Decision, err error) {
	code, hint, status := door.Failure(err)
	lines := []string{"not carried out by Gatehouse: " + code}
	if hint != "" {
		lines = append(lines, hint)
	}
	if !d.Receipt.IsZero() {
		lines = append(lines, "receipt "+d.Receipt.String())
	}
	say(w, status, d, lines)
}

func say(w http.ResponseWriter, status int, d enforcers.Decision, lines []string) {
	h := w.Header()
	if !d.Receipt.IsZero() {
		h.Set(door.ReceiptHeader, d.Receipt.String())
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
}

// refuseAPI answers a denied request to an API as RFC 9457, with the message that
// the host's own clients print.
func refuseAPI(w http.ResponseWriter, d enforcers.Decision) {
	code := reason(d)
	body := map[string]any{"type": "about:blank", "title": "refused by Gatehouse", "status": http.StatusForbidden, "code": code, "rule": d.Rule, "message": words(d)[0]}
	if hint := hints[code]; hint != "" {
		body["hint"] = hint
	}
	if !d.Receipt.IsZero() {
		body["receipt"] = d.Receipt.String()
		w.Header().Set(door.ReceiptHeader, d.Receipt.String())
	}
	writeJSON(w, http.StatusForbidden, "application/problem+json", body)
}

func writeJSON(w http.ResponseWriter, status int, kind string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "internal", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// words say why something was refused, a line each.
func words(d enforcers.Decision) []string {
	code := reason(d)
	out := []string{"refused by Gatehouse: " + code + " (" + d.Rule + ")"}
	if hint := hints[code]; hint != "" {
		out = append(out, hint)
	}
	if !d.Receipt.IsZero() {
		out = append(out, "receipt "+d.Receipt.String())
	}
	return out
}

func reason(d enforcers.Decision) string {
	if d.Fault != "" {
		return d.Fault
	}
	// In shadow the effective reason says only that authority is missing; what
	// the policy said stands in the trace.
	if d.Reason == enforcers.CodeNeedsAuthority {
		for _, s := range d.Trace {
			if s.Verdict.Effect == enforcers.Deny {
				return s.Verdict.Reason
			}
		}
	}
	return d.Reason
}
