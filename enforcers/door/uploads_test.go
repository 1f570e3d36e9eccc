package door_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// TestBypassMatrixUnlistedUploads is EG-93 in shadow: what a session sends to a host that
// nothing lists adds up, however it is cut into requests, and is refused before
// a byte of the rest leaves.
func TestBypassMatrixUnlistedUploads(t *testing.T) {
	o := newOutside(t)
	in := open(t, o, setup{mode: receipts.Shadow})
	send := func(in *inside, host, line string, size int, fields ...string) reply {
		fields = append(fields, fmt.Sprintf("Content-Length: %d", size))
		text := strings.Replace(request(line, fields...), good, host, 1)
		c, r, re := in.secure(host+":443", host)
		if c == nil {
			return re
		}
		defer c.Close()
		_, _ = io.WriteString(c, text+strings.Repeat("x", size)) // a refusal comes before the body is through
		return read(r, "POST")
	}
	want := func(what string, re reply, status int, code string) {
		t.Helper()
		if re.status != status {
			t.Errorf("%s: %d %v %s", what, re.status, re.err, re.body)
		}
		if code != "" {
			in.hangUp()
			if _, out := in.rec.last(); out.Code != code || out.Effect != enforcers.NotForwarded {
				t.Errorf("%s: outcome %+v", what, out)
			}
		}
	}
	const part = 600 << 10
	want("first part", send(in, "evil.test", "POST /a", part), http.StatusOK, "")
	reached := o.bytes.Load()
	want("second part", send(in, "evil.test", "POST /b", part), http.StatusRequestEntityTooLarge, enforcers.CodeUpCap)
	if n := o.bytes.Load() - reached; n > 0 {
		t.Errorf("%d bytes of the second part left", n)
	}
	want("what still fits", send(in, "evil.test", "POST /c", 100<<10), http.StatusOK, "")
	want("another unlisted host", send(in, "other.evil.test", "POST /a", part), http.StatusOK, "")
	want("a listed host", send(in, good, "POST /v1/x", part), http.StatusOK, "")
	want("and again", send(in, good, "POST /v1/x", part), http.StatusOK, "")
	want("another session", send(open(t, o, setup{mode: receipts.Shadow}), "evil.test", "POST /a", part), http.StatusOK, "")

	// A head can carry as much as a body: 16 KiB a request.
	for i := range 100 {
		re := send(in, "heads.evil.test", "GET /", 0, "X-Data: "+strings.Repeat("x", 16<<10))
		switch {
		case re.status == http.StatusRequestEntityTooLarge && i > 50:
			return
		case re.status != http.StatusOK:
			t.Fatalf("head %d: %d %v", i, re.status, re.err)
		}
	}
	t.Error("heads of 1.6 MiB went to an unlisted host")
}
