package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gatehouse/receipts"
)

// TestWiderGrant is M-05: a token that came back good for more than was asked
// for is given up before its first use, in a real session.
func TestWiderGrant(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	for name, wider := range map[string]func(map[string]any){
		"M-05_permission":           func(a map[string]any) { a["permissions"].(map[string]string)["issues"] = "write" },
		"M-05_level":                func(a map[string]any) { a["permissions"].(map[string]string)["contents"] = "write" },
		"M-05_unheard_of":           func(a map[string]any) { a["permissions"].(map[string]string)["models"] = "read" },
		"EG-80_a_sibling_too":       func(a map[string]any) { a["repositories"] = []map[string]any{{"id": 1001}, {"id": 1003}} },
		"EG-80_another_repository":  func(a map[string]any) { a["repositories"] = []map[string]any{{"id": 1003}} },
		"EG-80_repositories_unsaid": func(a map[string]any) { delete(a, "repositories") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHub(t)
			w.wider = wider
			dir := tempDir(t)
			w.configure(dir, gitOfShop, "")
			out, res := runInside(t, dir, "hard", `git ls-remote "$GATEHOUSE_REPOSITORY" && echo answered`)
			if !strings.Contains(out, "credential_unavailable") || strings.Contains(out, "answered") || strings.Contains(out, "ghs_canary") {
				t.Errorf("it was not refused:\n%s", out)
			}
			if w.git.Requests() != 0 || len(w.minted()) == 0 || len(w.alive()) != 0 {
				t.Errorf("the host saw %d requests; %d tokens were minted and %d live", w.git.Requests(), len(w.minted()), len(w.alive()))
			}
			if res.Exit != receipts.ExitComplete {
				t.Errorf("receipts: %s", res.Verdict())
			}
		})
	}
}

// TestTokenStaysOut is M-22 for what a session has minted: whoever has come to
// know a token can write it into no receipt, and no answer brings it in.
func TestTokenStaysOut(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	// The fake host's first token, which is a name too, so that it can be asked for.
	const prefix, number = "ghs-canary", "00000000000000000000000000000001"
	const api = "egress:\n  - {host: api.good.test, methods: [GET, POST], paths: [\"/**\"], connection: github-main}\n"
	echo := func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, `{"html_url":"https://git.good.test/%s"}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}
	for name, c := range map[string]struct {
		more, script, want string
		redacted           bool
	}{
		// That it is known inside is assumed: the names that a session asks for stand in its receipts.
		"M-22_in_a_receipt": {"operations: [scm.comment]\n", `git ls-remote "$GATEHOUSE_REPOSITORY" HEAD
T=` + prefix + `; curl -sS "https://${T}` + number + `.good.test/" || echo no such host`, "no such host", true},
		"ME-13_in_an_answer":    {api, `curl -sS https://api.good.test/repos/acme/shop; echo; sleep 60`, "", false},
		"ME-13_in_an_operation": {"operations: [scm.comment]\n", `curl -sS -H "Idempotency-Key: a" -d '{"number":7,"body":"hello"}' http://gatehouse.internal/agent/v1/operations/scm.comment`, "credential_reflected", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHub(t)
			w.prefix, w.told = prefix, true
			w.rest["GET /repos/acme/shop"] = echo
			w.rest["GET /repos/acme/shop/issues/7/comments"] = func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "[]") }
			w.rest["POST /repos/acme/shop/issues/7/comments"] = func(rw http.ResponseWriter, r *http.Request) {
				rw.WriteHeader(http.StatusCreated)
				echo(rw, r)
			}
			dir := tempDir(t)
			w.configure(dir, gitOfShop, c.more)
			out, export, res := runExported(t, dir, "hard", c.script)
			if len(w.minted()) == 0 || len(w.alive()) != 0 {
				t.Errorf("%d tokens were minted, %d live", len(w.minted()), len(w.alive()))
			}
			if !c.redacted && strings.Contains(out, prefix) {
				t.Errorf("the token came in:\n%s", out)
			}
			if !strings.Contains(out, c.want) {
				t.Errorf("no %q in:\n%s", c.want, out)
			}
			if bytes.Contains(export, []byte(prefix+number)) {
				t.Error("the token is in the receipts")
			}
			if got := bytes.Contains(export, []byte(receipts.Redacted)); got != c.redacted {
				t.Errorf("a receipt has a redacted field: %t, want %t\n%s", got, c.redacted, out)
			}
			if res.Exit != receipts.ExitComplete {
				t.Errorf("receipts: %s", res.Verdict())
			}
		})
	}
}
