package main

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
)

// access logs the deliveries that were not accepted, with the client that sent
// them. The address is for the operator's eyes: nothing decides by it.
func access(next http.Handler, trusted []netip.Prefix, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(s, r)
		if s.status >= 400 {
			log.InfoContext(r.Context(), "delivery not accepted", slog.Int("status", s.status), slog.String("client", client(r, trusted).String()))
		}
	})
}

// client returns the nearest address in the chain of proxies that is not a
// trusted one. A header is believed only as far as trusted peers wrote it.
func client(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && within(addr, trusted); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = next.Unmap()
	}
	return addr
}

func within(a netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// statusWriter remembers the status. Unwrap keeps deadlines and flushing
// working through http.ResponseController.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (s *statusWriter) WriteHeader(code int) {
	s.status = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the writer behind.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
