package model_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"gatehouse/enforcers"
)

// TestPlaceholderElsewhere: a model's placeholder means nothing to anybody else.
func TestPlaceholderElsewhere(t *testing.T) {
	w := start(t, anthropicSetup())
	client := &http.Client{Transport: &http.Transport{
		DialContext:     func(_ context.Context, _, addr string) (net.Conn, error) { return w.tunnel(addr) },
		TLSClientConfig: &tls.Config{RootCAs: w.roots},
	}}
	t.Cleanup(client.CloseIdleConnections)
	for name, place := range map[string]func(*http.Request, string){
		"ME-04_header": func(r *http.Request, ph string) { r.Header.Set("X-Api-Key", ph) },
		"ME-04_query":  func(r *http.Request, ph string) { r.URL.RawQuery = "k=" + ph },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cdn.good.test/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			place(r, w.model.Env()["ANTHROPIC_API_KEY"])
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 403 || code(string(b)) != enforcers.CodePlaceholderHost || w.cdn.Accepts() != 0 {
				t.Errorf("%d %s, %d connections", resp.StatusCode, b, w.cdn.Accepts())
			}
		})
	}
}
