package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatehouse/receipts"
)

// neighbourIDs counts the negative tests that neighbouring systems' bugs taught: NE-01 to NE-17.
const neighbourIDs = 17

// neighbour is one of them as an agent tries it inside a real hard session.
type neighbour struct {
	script string   // prints what came of it
	want   []string // of which one must stand there
	never  string
}

var neighboursInside = map[string]neighbour{
	"NE-01_raw_python": {`/usr/bin/python3 - <<'EOF'
import glob, os
seen = str(dict(os.environ))
for f in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline') + glob.glob('/gatehouse/*') + glob.glob('/run/gatehouse/*') + glob.glob(os.path.expanduser('~/.*')):
    try: one = open(f, 'rb').read().decode('latin1')
    except OSError: continue
    for secret in ('ghs_' + 'canary', 'KEY--' + '---\nMII'):
        if secret in one: print('found', secret, 'in', f)
    seen += one
print('hits', seen.count('ghs_' + 'canary') + seen.count('KEY--' + '---\nMII'))
EOF`, []string{"hits 0"}, "ghs_canary"},
	"NE-02_sibling_by_helper":  {`printf 'protocol=https\nhost=git.good.test\npath=acme/other\n\n' | git credential fill; git ls-remote https://git.good.test/acme/other`, []string{"repository_not_listed"}, "ghs_"},
	"NE-02_sibling_by_rest":    {`curl -sS https://api.good.test/repos/acme/other/contents/README`, []string{`"code":"`}, "README of"},
	"NE-02_sibling_by_graphql": {`curl -sS -H 'Content-Type: application/json' -d '{"query":"{repository(owner:\"acme\",name:\"other\"){id}}"}' https://api.good.test/graphql`, []string{`"code":"`}, "README of"},
	"NE-03_mixed_answer":       {`curl -sS https://mixed.test/`, []string{"address_not_public"}, "inside"},
	"NE-03_flipped_answer":     {`curl -sS https://flip.test/; curl -sS https://flip.test/`, []string{"address_not_public"}, ""},
	"NE-04_other_host":         {`curl -sSk -o /dev/null -w '%{http_code}' -H 'Host: evil.test' https://listed.test/`, []string{"421"}, ""},
	"NE-05_path_games":         {`for p in /v1/../admin /v1/%2e%2e/admin /v1%2f..%2fadmin //admin '/admin;/v1/'; do curl -sS --path-as-is -o /dev/null -w '%{http_code} ' "https://listed.test$p"; done`, []string{"40"}, "200"},
	"NE-06_two_lengths":        {`exec 3<>/dev/tcp/127.0.0.1/3128; printf 'POST http://listed.test/v1/x HTTP/1.1\r\nHost: listed.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' >&3; head -1 <&3`, []string{" 400 "}, " 200 "},
	"NE-08_own_token":          {`curl -sS -H 'Authorization: Bearer ghp_attackers0123456789abcdef' -d '{"title":"x"}' https://api.good.test/repos/acme/shop/issues; curl -sS -H 'Authorization: Bearer ghp_attackers0123456789abcdef' -d '{}' https://api.good.test/gists`, []string{"foreign_credential", `"code":"`}, `"id"`},
	"NE-13_the_node_itself":    {`for a in 127.0.0.1:4222 127.0.0.1:8081 "$(ip route 2>/dev/null | sed -n 's/default via \([^ ]*\).*/\1/p')":8081; do curl -sS -m 5 -o /dev/null -w '%{http_code} ' "http://$a/v1/status" || true; done; echo tried`, []string{"tried"}, "200"},
}

// neighboursElsewhere are those whose attack is not an agent's, or that another
// test makes on real parts: file, and what must stand in it.
var neighboursElsewhere = map[string][][2]string{
	"NE-07_reflected_credential":         {{"credentials_test.go", "TestReflectedCredentialEndsSession"}, {"../../enforcers/operations/linear/linear_test.go", "ME-13_reflects"}},
	"NE-08_by_an_obedient_agent":         {{"drill_test.go", "NE-08_nothing_left"}},
	"NE-09_budget_race":                  {{"../../enforcers/spend/ledger_test.go", "ME-14_one_headroom"}, {"../../enforcers/spend/ledger_test.go", "ME-15_EG-92_fan_out"}},
	"NE-10_payload_drives_policy":        {{"drill_test.go", "TestInjectionDrill"}, {"../../receipts/tamper_test.go", "RC-01_flip_a_payload_bit"}},
	"NE-11_door_closed_mid_session":      {{"ends_test.go", "TestEndsCutAccess"}},
	"NE-12_clock_skew":                   {{"../../ingest/labels_test.go", "IN-26 beyond 300 s, future"}},
	"NE-13_not_on_the_node":              {{"mcp_test.go", "NE-13_not_on_the_node"}},
	"NE-14_another_sessions_placeholder": {{"../../enforcers/telemetry/mediator_test.go", "NE-14_other_placeholder"}, {"../../enforcers/door/credential_test.go", "EG-73_other_session"}},
	"NE-15_rotated_in_flight":            {{"../../enforcers/upstream/rotation_test.go", "NE-15_rotated_in_flight"}},
	"NE-16_a_child_widens":               {{"agent_test.go", "bundle_not_covered"}},
	"NE-17_no_credential_on_a_deny":      {{"../../enforcers/telemetry/mediator_test.go", "NE-17_"}},
}

// TestNeighbours makes the attacks from inside one real hard session, and fails
// when an id has no subtest, here or where the table says.
func TestNeighbours(t *testing.T) {
	for n := 1; n <= neighbourIDs; n++ {
		id := fmt.Sprintf("NE-%02d_", n)
		has := func(name string) bool { return strings.HasPrefix(name, id) }
		inside, elsewhere := false, false
		for name := range neighboursInside {
			inside = inside || has(name)
		}
		for name := range neighboursElsewhere {
			elsewhere = elsewhere || has(name)
		}
		if !inside && !elsewhere {
			t.Errorf("%s has no subtest", id)
		}
	}
	for name, at := range neighboursElsewhere {
		t.Run(name, func(t *testing.T) {
			for _, x := range at {
				b, err := os.ReadFile(filepath.FromSlash(x[0]))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(b), x[1]) {
					t.Errorf("%s has no %s", x[0], x[1])
				}
			}
		})
	}
	if testing.Short() {
		t.Skip("short: starts a sandbox")
	}
	w := newGitHub(t)
	reached := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "inside") })
	listed, err := w.HTTPS("listed.test", netip.MustParseAddr("93.184.216.130"), reached)
	if err != nil {
		t.Fatal(err)
	}
	evil, err := w.HTTPS("evil.test", netip.MustParseAddr("93.184.216.131"), reached)
	if err != nil {
		t.Fatal(err)
	}
	public, private := netip.MustParseAddr("93.184.216.130"), netip.MustParseAddr("10.0.0.1")
	w.DNS.Answer("mixed.test", public, private)
	w.DNS.Flip("flip.test", []netip.Addr{private}, []netip.Addr{netip.MustParseAddr("169.254.169.254")})
	dir := tempDir(t)
	w.configure(dir, gitOfShop, `egress: [{host: listed.test, methods: [GET, POST], paths: ["/v1/**"]}, {host: mixed.test}, {host: flip.test}]
`)
	var names []string
	for name := range neighboursInside {
		names = append(names, name)
	}
	slices.Sort(names)
	script := "cat > run.sh <<'OUTER'\n"
	for _, name := range names {
		script += "echo '== " + name + "'\n( " + neighboursInside[name].script + "\n) 2>&1\n"
	}
	script += "OUTER\nbash run.sh"
	out, res := runInside(t, dir, "hard", script)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			c := neighboursInside[name]
			_, said, _ := strings.Cut(out, "== "+name+"\n")
			said, _, _ = strings.Cut(said, "\n== ")
			if !slices.ContainsFunc(c.want, func(want string) bool { return strings.Contains(said, want) }) || c.never != "" && strings.Contains(said, c.never) {
				t.Errorf("it says %q, want one of %q and never %q", said, c.want, c.never)
			}
		})
	}
	if listed.Requests() != 0 || evil.Accepts() != 0 {
		t.Errorf("listed.test served %d requests, evil.test saw %d connections", listed.Requests(), evil.Accepts())
	}
	if res.Exit != receipts.ExitComplete {
		t.Errorf("receipts: %s", res.Verdict())
	}
}
