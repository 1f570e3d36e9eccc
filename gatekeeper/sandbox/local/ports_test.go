package local

import (
	"fmt"
	"net"
	"testing"

	"gatehouse/gatekeeper/sandbox"
)

// SB-20: a port of the host's that the probe tries is none at which
// gatehouse-init waits inside: one in 7,000 sessions was refused for that.
func TestListenApart(t *testing.T) {
	if l, err := listenApart(fmt.Sprintf("127.0.0.1:%d", sandbox.CapturePort)); err == nil {
		l.Close()
		t.Error("a port of gatehouse-init's is tried")
	}
	l, err := listenApart("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if port := l.Addr().(*net.TCPAddr).AddrPort().Port(); port == 0 || sandbox.OwnPort(port) {
		t.Errorf("port %d", port)
	}
}
