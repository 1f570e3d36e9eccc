package policies

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigureRefuses(t *testing.T) {
	rule := func(s string) string { return `{"egress":[{` + s + `}]}` }
	const ok = `"host":"a.test","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]`
	cases := map[string]struct{ enforcer, policy string }{
		"EG-101_unknown_section":      {"egress", `{"mode":"shadow"}`},
		"EG-101_unknown_rule_key":     {"egress", rule(ok + `,"unless":"x"`)},
		"EG-101_no_ports":             {"egress", rule(strings.Replace(ok, "[443]", "[]", 1))},
		"EG-101_ports_missing":        {"egress", rule(strings.Replace(ok, `"ports":[443],`, "", 1))},
		"EG-101_port_zero":            {"egress", rule(strings.Replace(ok, "443", "0", 1))},
		"EG-101_port_large":           {"egress", rule(strings.Replace(ok, "443", "65536", 1))},
		"EG-101_star":                 {"egress", rule(strings.Replace(ok, "a.test", "*", 1))},
		"EG-101_tld_wildcard":         {"egress", rule(strings.Replace(ok, "a.test", "*.com", 1))},
		"EG-101_newline_in_host":      {"egress", rule(strings.Replace(ok, "a.test", `a.test\n`, 1))},
		"EG-101_paths_missing":        {"egress", rule(strings.Replace(ok, `"paths":["/**"],`, "", 1))},
		"path_not_absolute":           {"egress", rule(strings.Replace(ok, "/**", "v1/**", 1))},
		"path_star_inside":            {"egress", rule(strings.Replace(ok, "/**", "/a*b", 1))},
		"path_tree_without_slash":     {"egress", rule(strings.Replace(ok, "/**", "/a**", 1))},
		"unknown_scheme":              {"egress", rule(strings.Replace(ok, "https", "ftp", 1))},
		"unknown_blind":               {"egress", rule(`"blind":"udp",` + ok)},
		"keys_out_of_order":           {"egress", rule(`"id":"x",` + ok)},
		"duplicate_key":               {"egress", rule(`"host":"b.test",` + ok)},
		"white_space":                 {"egress", `{"egress": []}`},
		"trailing_bytes":              {"egress", `{}}`},
		"rule_id_with_space":          {"egress", rule(strings.Replace(ok, "egress[0]", "a b", 1))},
		"git_template_left_over":      {"git", `{"git":{"push":{"delete":false,"deny_paths":[],"force":false,"refs":["refs/heads/{entity}/*"]},"repository":"1"}}`},
		"git_ref_star_inside":         {"git", `{"git":{"push":{"delete":false,"deny_paths":[],"force":false,"refs":["refs/heads/a*"]},"repository":"1"}}`},
		"git_ref_tree_in_the_middle":  {"git", `{"git":{"push":{"delete":false,"deny_paths":[],"force":false,"refs":["refs/**/x"]},"repository":"1"}}`},
		"git_no_refs":                 {"git", `{"git":{"push":{"delete":false,"deny_paths":[],"force":false,"refs":[]},"repository":"1"}}`},
		"git_sibling_access":          {"git", `{"git":{"repository":"1","siblings":[{"access":"admin","repository":"2"}]}}`},
		"git_unknown_key":             {"git", `{"git":{"repository":"1","wiki":true}}`},
		"spend_model_without_name":    {"spend", `{"models":[{"allow":["x"],"connection":"","max_output_tokens":1}]}`},
		"spend_negative_limit":        {"spend", `{"spend":{"limit":-1}}`},
		"spend_number_beyond_the_abi": {"spend", `{"spend":{"limit":9007199254740992}}`},
		"spend_fraction":              {"spend", `{"spend":{"limit":1.5}}`},
		"unknown_enforcer":            {"dlp", `{}`},
	}
	if _, status := Configure([]byte(`{"abi":1,"bundle":` + rule(ok) + `,"params":{"enforcer":"egress"}}`)); status != OK {
		t.Fatal("the base case is refused")
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, status := Configure([]byte(`{"abi":1,"bundle":` + c.policy + `,"params":{"enforcer":"` + c.enforcer + `"}}`)); status != BadBundle {
				t.Errorf("status %d", status)
			}
		})
	}
	if _, status := Configure([]byte(`{"abi":2,"bundle":{},"params":{"enforcer":"egress"}}`)); status != UnsupportedVersion {
		t.Errorf("ABI 2: status %d", status)
	}
}

// TestCompiledBundles configures every enforcer with the policies that package
// bundle really compiles.
func TestCompiledBundles(t *testing.T) {
	files, err := filepath.Glob("../../gatekeeper/bundle/testdata/policy/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no compiled bundles: %v", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range Names() {
			t.Run(filepath.Base(f)+"/"+name, func(t *testing.T) {
				if _, status := Configure([]byte(`{"abi":1,"bundle":` + compact(t, raw) + `,"params":{"enforcer":"` + name + `"}}`)); status != OK {
					t.Errorf("status %d", status)
				}
			})
		}
	}
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
