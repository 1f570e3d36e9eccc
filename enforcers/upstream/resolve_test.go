package upstream

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestFailureIsSaidOnce: a name that neither family has fails in one line.
func TestFailureIsSaidOnce(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeNameError)
		_ = w.WriteMsg(m)
	})}
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	defer func() { _ = s.Shutdown(); <-ended }()
	r := &resolver{server: netip.MustParseAddrPort(l.LocalAddr().String()), timeout: 30 * time.Second}
	_, err = r.lookup(t.Context(), "nowhere.test")
	if err == nil || strings.Contains(err.Error(), "\n") || strings.Count(err.Error(), "does not exist") != 1 {
		t.Errorf("%v", err)
	}
}
