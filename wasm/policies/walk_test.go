package policies

import (
	"bytes"
	"testing"

	"gatehouse/enforcers"
)

// inSmallSteps reads an action as walk does, member by member.
func inSmallSteps(message []byte) (r request, ok bool) {
	c, ok := envelope(message)
	if !ok {
		return r, false
	}
	text := func(key string, s slot) {
		c.seek(`"` + key + `":`)
		r.found[s] = c.raw()
	}
	to := func() {
		c.seek(`"to":`)
		c.eat('{')
		text("host", slotHost)
		c.seek(`"ip":`)
		r.ip = c.boolean()
		c.seek(`"port":`)
		r.port = c.integer()
		text("scheme", slotScheme)
		r.scheme = schemeBit(r.found[slotScheme])
		c.finish()
	}
	text("connection", slotConnection)
	switch {
	case c.has(`,"http_request":{`):
		r.body = bodyHTTP
		text("method", slotMethod)
		text("path", slotPath)
		to()
		text("upgrade", slotUpgrade)
		c.finish()
	case c.has(`,"dns_query":{`):
		r.body = bodyDNS
		text("name", slotName)
		c.finish()
	}
	text("kind", slotKind)
	switch {
	case c.has(`,"net_connect":{`):
		r.body = bodyConnect
		c.seek(`"blind":`)
		r.blind = c.boolean()
		c.seek(`"literal":`)
		r.literal = c.boolean()
		to()
		c.finish()
	case c.has(`,"operation_call":{`):
		r.body = bodyOperation
		text("name", slotName)
		c.finish()
	case string(r.found[slotKind]) == "telemetry.emit":
		c.seek(`"telemetry_emit":`)
		c.value()
		r.body = bodyTelemetry
	}
	return r, c.closeEnvelope()
}

// FuzzWalk: what walk accepts is accepted in small steps, and read as the same.
func FuzzWalk(f *testing.F) {
	seeds := [][]byte{
		httpAction(f, "a.pkg.test", "443", "https", "GET", "/x", "acme", "websocket"),
		connectAction(f, "db.test", "5432", "tcp", true, false),
		queryAction(f, "a.pkg.test"), operationAction(f, "scm.comment"),
		message(f, enforcers.Action{Kind: enforcers.TelemetryEmit, Connection: "langfuse-main", Telemetry: &enforcers.Telemetry{}}),
		bytes.Replace(httpAction(f, "a.pkg.test", "443", "https", "GET", "/x", "", ""), []byte(`,"seq"`), []byte(`,"net_connect":{"blind":true,"literal":false,"to":{"host":"b","ip":false,"port":1,"scheme":"tcp"}},"seq"`), 1),
		message(f, enforcers.Action{Kind: enforcers.GitFetch, Fetch: &enforcers.Fetch{}}),
	}
	same := func(t testing.TB, message []byte) (accepted bool) {
		var r request
		c, ok := envelope(message)
		if !ok || !r.decode(&c) {
			return false
		}
		slow, ok := inSmallSteps(message)
		if !ok {
			t.Fatalf("accepted %q", message)
		}
		for s := range r.found {
			if s := slot(s); s == slotIP || s == slotPort || s == slotBlind || s == slotLiteral {
				continue
			}
			if !bytes.Equal(r.found[s], slow.found[s]) {
				t.Errorf("value %d is %q, want %q: %q", s, r.found[s], slow.found[s], message)
			}
		}
		r.found, slow.found = values{}, values{}
		if r.body != slow.body || r.port != slow.port || r.scheme != slow.scheme || r.ip != slow.ip || r.literal != slow.literal || r.blind != slow.blind {
			t.Errorf("%+v, want %+v: %q", r, slow, message)
		}
		return true
	}
	for _, s := range seeds {
		f.Add(s)
		if !same(f, s) {
			f.Errorf("refused %q", s)
		}
	}
	f.Add(bytes.Replace(seeds[0], []byte(`"scheme":"https"}`), make([]byte, 9), 1))
	f.Fuzz(func(t *testing.T, message []byte) { same(t, message) })
}

// TestWalkRefuses what reading in small steps refused.
func TestWalkRefuses(t *testing.T) {
	good := httpAction(t, "a.pkg.test", "443", "https", "GET", "/x", "", "")
	j := configureWith(t, "egress", sorted(testPolicy))
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
