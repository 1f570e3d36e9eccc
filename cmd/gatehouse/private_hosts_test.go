package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestPrivateListenerHasItsOwnHosts(t *testing.T) {
	h := ownHosts("metrics.internal.example:9090", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for host, want := range map[string]int{
		"127.0.0.1:9090": 200, "[::1]:9090": 200, "10.1.2.3:9090": 200, "localhost:9090": 200, "LOCALHOST": 200, "metrics.internal.example:9090": 200,
		"evil.example:9090": 421, "127.0.0.1.evil.example:9090": 421, "localhost.evil.example": 421, "": 421, "localhost.:9090": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}
