package main

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ownHosts refuses requests to the private listener under a name that is not its
// own: a page whose name was pointed at this address (DNS rebinding) must not read
// metrics. An address names no page, so every address is taken.
func ownHosts(listen string, next http.Handler) http.Handler {
	own, _, err := net.SplitHostPort(listen)
	if err != nil {
		own = listen
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && host != strings.ToLower(own) {
			http.Error(w, "host_not_listed", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
