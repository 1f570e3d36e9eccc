package model_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/spend"
)

// TestSmuggled: two readings of where a request ends are refused before the
// mediator sees either.
func TestSmuggled(t *testing.T) {
	second := "POST /m/main/v1/files HTTP/1.1\r\nHost: gatehouse.internal\r\nContent-Length: 0\r\n\r\n"
	head := "POST /m/main/v1/messages HTTP/1.1\r\nHost: gatehouse.internal\r\nContent-Type: application/json\r\n"
	for name, raw := range map[string]string{
		"ME-24_te_and_cl":        head + fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n", len(hello)) + second,
		"ME-24_cl_and_te":        head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hello), len(hello), hello),
		"ME-24_two_lengths":      head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n\r\n", len(hello)) + hello,
		"ME-24_te_by_another":    head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + second,
		"ME-24_folded_te":        head + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + second,
		"ME-24_chunk_extension":  head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x;a=\n\r\n%s\r\n0\r\n\r\n", len(hello), hello),
		"ME-24_length_with_sign": head + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(hello)) + hello,
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, anthropicSetup())
			c, err := w.tunnel("gatehouse.internal:80")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, raw) // the door may hang up in the middle
			answer, _ := io.ReadAll(c)
			if strings.HasPrefix(string(answer), "HTTP/1.1 2") || strings.Count(string(answer), "HTTP/1.1 400") > 1 {
				t.Errorf("answered %.200q", answer)
			}
			if w.fake.Accepts() != 0 || w.fake.Bytes() != 0 {
				t.Errorf("%d connections and %d bytes reached the provider", w.fake.Accepts(), w.fake.Bytes())
			}
		})
	}
}

// TestOtherAuthority: on a connection to the provider, a stream that names
// another host is for nobody.
func TestOtherAuthority(t *testing.T) {
	w := start(t, anthropicSetup())
	client := &http.Client{Transport: &http.Transport{
		DialContext:     func(_ context.Context, _, addr string) (net.Conn, error) { return w.tunnel(addr) },
		TLSClientConfig: &tls.Config{RootCAs: w.roots}, ForceAttemptHTTP2: true,
	}}
	t.Cleanup(client.CloseIdleConnections)
	for name, host := range map[string]string{
		"ME-25_unlisted": "evil.test", "ME-25_listed_elsewhere": "cdn.good.test", "ME-25_port": "api.anthropic.com:8443", "ME-25_door": "gatehouse.internal",
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.anthropic.com/v1/messages", strings.NewReader(hello))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Host = host // :authority
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusMisdirectedRequest || code(string(b)) != enforcers.CodeMisdirected {
				t.Errorf("%s %d %s", resp.Proto, resp.StatusCode, b)
			}
			if w.fake.Accepts() != 0 || w.cdn.Accepts() != 0 {
				t.Error("something was dialed")
			}
		})
	}
}

// TestMediatorGone: with its door closed a session has no way left, whatever it
// holds.
func TestMediatorGone(t *testing.T) {
	t.Run("ME-23_door_closed", func(t *testing.T) {
		w := start(t, anthropicSetup())
		if resp, body := w.post("/v1/messages", hello); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		accepts, bytes := w.fake.Accepts(), w.fake.Bytes()
		w.door.Close(enforcers.CodeRevoked)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, baseURL+"/v1/messages", strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := w.client.Do(r); err == nil {
			_ = resp.Body.Close()
			t.Errorf("answered %d", resp.StatusCode)
		}
		if w.fake.Accepts() != accepts || w.fake.Bytes() != bytes {
			t.Error("something reached the provider")
		}
	})
}

// TestClockJump: money is what it is, whatever day the clock says. A session's
// own limit outlives every jump, and a day that comes twice is one day.
func TestClockJump(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ME-23_clock_back": -72 * time.Hour, "ME-23_clock_ahead": 72 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			s := anthropicSetup()
			s.limit = 16_000_000 // one call, and not two
			s.ledger = spend.New(spend.Options{PerDay: 100_000_000_000, Clock: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return now
			}})
			s.serve = anthropicUnary(2000, 300)
			w := start(t, s)
			const ask = `{"model":"claude-sonnet-4-5","max_tokens":300,"messages":[]}`
			if resp, body := w.post("/v1/messages", ask); resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			w.rec.last(t, enforcers.ModelCall)
			mu.Lock()
			now = now.Add(jump)
			mu.Unlock()
			before := w.fake.Requests()
			resp, body := w.post("/v1/messages", ask)
			if resp.StatusCode != 403 || code(body) != spend.CodeExceeded {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if w.fake.Requests() != before {
				t.Error("a call went out")
			}
		})
	}
}
