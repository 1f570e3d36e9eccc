package model_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
	"gatehouse/receipts"
)

// What a URL can lead to: images and documents by their first bytes.
const (
	png  = "\x89PNG\r\n\x1a\n0000"
	webp = "RIFF0000WEBPVP8 "
	aPDF = "%PDF-1.7\n"
)

// cdn answers as the path says.
func cdn(w http.ResponseWriter, r *http.Request) {
	switch p := r.URL.Path; {
	case p == "/x.png":
		w.Header().Set("Content-Type", "text/plain") // nobody's word
		_, _ = w.Write([]byte(png))
	case p == "/x.webp":
		_, _ = w.Write([]byte(webp))
	case p == "/x.pdf":
		_, _ = w.Write([]byte(aPDF))
	case p == "/page":
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte("<html>not an image"))
	case p == "/long":
		_, _ = w.Write([]byte(png))
		for range 21 << 10 {
			_, _ = w.Write(make([]byte, 1<<10))
		}
	case strings.HasPrefix(p, "/a/"):
		_, _ = w.Write([]byte(png)) // whatever it takes the path for
	case p == "/gone":
		http.Error(w, "gone", http.StatusGone)
	case p == "/coded":
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte(png))
	case p == "/near":
		http.Redirect(w, r, "/x.png", http.StatusFound)
	case p == "/far":
		http.Redirect(w, r, "https://evil.test/x.png", http.StatusFound)
	case p == "/plain":
		http.Redirect(w, r, "http://cdn.good.test/x.png", http.StatusFound)
	case p == "/inward":
		http.Redirect(w, r, "https://169.254.169.254/x.png", http.StatusFound)
	case p == "/round":
		http.Redirect(w, r, "/round", http.StatusFound)
	default:
		http.NotFound(w, r)
	}
}

// ME-27: the door fetches what a URL in a request leads to, each hop by a rule, and
// the provider is given the content and no address.
func TestURLs(t *testing.T) {
	anthropic := func(kind, url string) (string, string) {
		return "/v1/messages", fmt.Sprintf(`{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":%q,"source":{"type":"url","url":%q}}]}]}`, kind, url)
	}
	chat := func(_, url string) (string, string) {
		return chatPath, fmt.Sprintf(`{"model":"gpt-5","max_completion_tokens":10,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q,"detail":"low"}}]}]}`, url)
	}
	responses := func(_, url string) (string, string) {
		return respPath, fmt.Sprintf(`{"model":"gpt-5","max_output_tokens":10,"store":false,"input":[{"role":"user","content":[{"type":"input_image","image_url":%q}]}]}`, url)
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	type request func(kind, url string) (path, body string)
	cases := map[string]struct {
		provider string
		by       request
		kind     string
		url      string
		want     string // in what the provider gets
		code     string // of the refusal instead
		hops     int    // http.requests that the gate judged
	}{
		"ME-27_image":               {"anthropic", anthropic, "image", "https://cdn.good.test/x.png", `"source":{"type":"base64","media_type":"image/png","data":"` + b64(png) + `"}`, "", 1},
		"ME-27_image_webp":          {"anthropic", anthropic, "image", "https://cdn.good.test/x.webp", `"media_type":"image/webp"`, "", 1},
		"ME-27_document":            {"anthropic", anthropic, "document", "https://cdn.good.test/x.pdf", `"source":{"type":"base64","media_type":"application/pdf","data":"` + b64(aPDF) + `"}`, "", 1},
		"ME-27_chat":                {"openai", chat, "", "https://cdn.good.test/x.png", `"image_url":{"url":"data:image/png;base64,` + b64(png) + `","detail":"low"}`, "", 1},
		"ME-27_responses":           {"openai", responses, "", "https://cdn.good.test/x.png", `"image_url":"data:image/png;base64,` + b64(png) + `"`, "", 1},
		"ME-27_upper_case":          {"openai", responses, "", "HTTPS://CDN.good.test/x.png", `"image_url":"data:image/png;base64,`, "", 1},
		"ME-27_redirect_listed":     {"anthropic", anthropic, "image", "https://cdn.good.test/near", `"media_type":"image/png"`, "", 2},
		"ME-27_redirect_elsewhere":  {"anthropic", anthropic, "image", "https://cdn.good.test/far", "", "host_not_listed", 2},
		"ME-27_redirect_to_http":    {"anthropic", anthropic, "image", "https://cdn.good.test/plain", "", model.CodeSource, 1},
		"ME-27_redirect_inward":     {"openai", chat, "", "https://cdn.good.test/inward", "", enforcers.CodeIPLiteral, 2},
		"ME-27_redirects_for_ever":  {"anthropic", anthropic, "image", "https://cdn.good.test/round", "", model.CodeFetch, 5},
		"ME-27_no_image":            {"anthropic", anthropic, "image", "https://cdn.good.test/page", "", model.CodeFetch, 1},
		"ME-27_document_for_image":  {"openai", chat, "", "https://cdn.good.test/x.pdf", "", model.CodeFetch, 1},
		"ME-27_image_for_document":  {"anthropic", anthropic, "document", "https://cdn.good.test/x.png", "", model.CodeFetch, 1},
		"ME-27_too_long":            {"anthropic", anthropic, "image", "https://cdn.good.test/long", "", model.CodeFetch, 1},
		"ME-27_not_there":           {"anthropic", anthropic, "image", "https://cdn.good.test/gone", "", model.CodeFetch, 1},
		"ME-27_encoded":             {"anthropic", anthropic, "image", "https://cdn.good.test/coded", "", model.CodeFetch, 1},
		"EG-56_dots_with_parameter": {"anthropic", anthropic, "image", "https://cdn.good.test/a/..;/x.png", "", model.CodeSource, 1},
		"EG-56_dots_encoded":        {"anthropic", anthropic, "image", "https://cdn.good.test/a/%2e%2E/x.png", "", model.CodeSource, 1},
		"EG-56_overlong":            {"anthropic", anthropic, "image", "https://cdn.good.test/a/%C0%AE%C0%AE/x.png", "", model.CodeSource, 1},
		"EG-57_backslash":           {"anthropic", anthropic, "image", "https://cdn.good.test/a/..%5c..%5cx.png", "", model.CodeSource, 1},
		"EG-51_blank_in_the_query":  {"anthropic", anthropic, "image", "https://cdn.good.test/x.png?a HTTP/1.1", "", model.CodeSource, 1},
		"EG-56_plainly_spelled":     {"anthropic", anthropic, "image", "https://cdn.good.test/a/b//%61.png", `"media_type":"image/png"`, "", 1},
		"ME-27_percent_in_the_path": {"anthropic", anthropic, "image", "https://cdn.good.test/a%2fx.png", "", model.CodeSource, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := setupOf(c.provider)
			s.cdn, s.limit = cdn, 100e9
			w := start(t, s)
			path, body := c.by(c.kind, c.url)
			resp, answer := w.post(path, body)
			hops := w.rec.count(enforcers.HTTPRequest)
			if hops != c.hops {
				t.Errorf("%d hops were judged, want %d", hops, c.hops)
			}
			if c.code != "" {
				if resp.StatusCode < 400 || code(answer) != c.code || w.fake.Requests() != 0 {
					t.Errorf("%d %s, want %s; %d requests reached the provider", resp.StatusCode, answer, c.code, w.fake.Requests())
				}
				return
			}
			got, _, _ := w.fake.last()
			if resp.StatusCode != 200 || !strings.Contains(got, c.want) || strings.Contains(got, "good.test") {
				t.Errorf("%d %s; the provider got %s", resp.StatusCode, answer, got)
			}
			if _, o := w.rec.last(t, enforcers.HTTPRequest); o.Effect != enforcers.Forwarded || o.Down == 0 {
				t.Errorf("the receipt of what was fetched: %+v", o)
			}
		})
	}
	t.Run("ME-27_shadow_lends_nothing", func(t *testing.T) {
		s := anthropicSetup()
		s.cdn, s.mode = cdn, receipts.Shadow
		w := start(t, s)
		path, body := anthropic("image", "https://cdn.good.test/far")
		if resp, answer := w.post(path, body); resp.StatusCode != 403 || code(answer) != model.CodeSource || w.fake.Requests() != 0 {
			t.Errorf("%d %s", resp.StatusCode, answer)
		}
	})
	t.Run("ME-27_seventeen", func(t *testing.T) {
		s := anthropicSetup()
		s.cdn = cdn
		w := start(t, s)
		one := `{"type":"image","source":{"type":"url","url":"https://cdn.good.test/x.png"}}`
		_, answer := w.post("/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[`+strings.TrimSuffix(strings.Repeat(one+",", 17), ",")+`]}]}`)
		if code(answer) != model.CodeSource || w.cdn.Accepts() != 0 {
			t.Errorf("%s", answer)
		}
	})
}
