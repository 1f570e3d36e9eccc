package api

import (
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"gatehouse/internal/problem"
)

// TestUnreachable: why there is no answer, and what to do, without the request
// that nobody typed.
func TestUnreachable(t *testing.T) {
	c := NewClient("/state/gatehouse.sock")
	for errno, hint := range map[syscall.Errno]string{
		syscall.ENOENT:       "gatehouse serve",
		syscall.ECONNREFUSED: "gatehouse serve",
		syscall.EACCES:       "the user that runs the node",
	} {
		err := c.unreachable(&url.Error{Op: "Get", URL: "http://gatehouse/v1/sessions", Err: &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", errno)}})
		want := "couldn't reach the node at /state/gatehouse.sock (unreachable): connect: " + errno.Error()
		if err.Error() != want || problem.CodeOf(err) != problem.Unreachable || !strings.Contains(problem.HintOf(err), hint) {
			t.Errorf("%v\nwant %s\nhint %s", err, want, problem.HintOf(err))
		}
	}
}
