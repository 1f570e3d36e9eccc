package policies

import (
	"bytes"
	"testing"
)

// TestEgressRefuses: an action that is not as the host writes it has no verdict.
func TestEgressRefuses(t *testing.T) {
	good := httpAction(t, "a.pkg.test", "443", "https", "GET", "/x", "", "")
	j := configureWith(t, "egress", sorted(testPolicy))
	if j.Decide(good) == nil {
		t.Fatal("the action as the host writes it has no verdict")
	}
	for name, change := range map[string][2]string{
		"comma_before_end":  {`"scheme":"https"}`, `"scheme":"https",}`},
		"keys_out_of_order": {`"method":"GET","path":"/x"`, `"path":"/x","method":"GET"`},
		"member_missing":    {`"upgrade":""`, `"upgrades":""`},
		"text_of_no_text":   {`"method":"GET"`, `"method":1`},
		"boolean_of_text":   {`"ip":false`, `"ip":"false"`},
		"boolean_longer":    {`"ip":false`, `"ip":falsey`},
		"number_of_nothing": {`"port":443`, `"port":`},
		"number_with_sign":  {`"port":443`, `"port":+443`},
		"number_longer":     {`"port":443`, `"port":443x`},
		"number_with_zero":  {`"port":443`, `"port":0443`},
		"to_of_no_object":   {`"to":{`, `"to":[{`},
		"another_body":      {`,"seq"`, `,"operation_call":{"name":"scm.comment"},"seq"`},
		"zeros_for_an_end":  {`,"seq"`, ",\x00\x00\x00\x00\x00\x00\x00\x00}"},
		"zeros_in_an_end":   {`"scheme":"https"}`, "\"scheme\":\"https\"\x00\x00\x00\x00\x00\x00\x00\x00"},
		"unclosed_text":     {`"path":"/x"`, `"path":"/x`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
			if bytes.Equal(bad, good) {
				t.Fatal("nothing changed")
			}
			if a := j.Decide(bad); a != nil {
				t.Errorf("answered %s %s: %s", a.Effect, a.Reason, bad)
			}
		})
	}
}
