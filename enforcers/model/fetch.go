package model

import (
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/authority"
)

// An image or document that a request names by a URL is fetched by the door, each
// hop an http.request that a rule must allow, and sent inline. The provider is
// given no address: it would follow a redirect to anywhere, and nothing here could
// see that (ME-27).

// Bounds of what one call has fetched for it.
const (
	mostSources  = 16
	mostHops     = 5 // redirects included
	mostOfSource = 20 << 20
	sourceLimit  = time.Minute // for all of them
)

// source is a URL in a request, and how its content is written in its place.
type source struct {
	url    string
	types  []string // media types that may stand there
	inline func(media, data string) edit
}

// imageTypes are those that both providers read.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

const pdf = "application/pdf"

// byURL notes a URL whose content takes the place of an object or a string.
func (r *request) byURL(v *value, types []string, inline func(media, data string) edit) {
	if !strings.HasPrefix(strings.ToLower(v.str), "https://") || len(r.sources) >= mostSources {
		r.refuse(CodeSource, "url")
		return
	}
	r.sources = append(r.sources, source{v.str, types, inline})
	if types[0] == pdf {
		r.opaque = true
	} else {
		r.images++
	}
}

// anthropicSource is an object of an image or a document, inline or by URL.
func anthropicSource(of rule, types ...string) rule {
	return func(r *request, v *value) {
		of(r, v)
		if r.code != "" {
			return
		}
		if t := v.get("type"); t.str == "url" {
			u := v.get("url")
			if u == nil || u.kind != text {
				r.refuse(CodeBody, "url")
				return
			}
			r.byURL(u, types, func(media, data string) edit {
				return edit{v.start, v.end, `{"type":"base64","media_type":"` + media + `","data":"` + data + `"}`}
			})
		}
	}
}

// inlineOrFetched is a data: URL of an image, or one that its content is fetched
// from.
func inlineOrFetched(r *request, v *value) {
	if v.kind == text && strings.HasPrefix(v.str, "data:") {
		anImage(r, v)
		return
	}
	if !r.want(v, text) {
		return
	}
	r.byURL(v, imageTypes, func(media, data string) edit {
		return edit{v.start, v.end, `"data:` + media + `;base64,` + data + `"`}
	})
}

// closedURL is a URL whose content cannot be sent in its place.
func closedURL(r *request, v *value) {
	if r.want(v, text) {
		r.refuse(CodeSource, "url")
	}
}

// httpsURL is a URL of https and of nothing of a provider's own.
func httpsURL(r *request, v *value) {
	if r.want(v, text) && !strings.HasPrefix(strings.ToLower(v.str), "https://") {
		r.refuse(CodeSource, "url")
	}
}

// fetch has the door fetch every URL of the request and writes its content in its
// place. It answers what does not go on.
func (x *call) fetch(w http.ResponseWriter) bool {
	ctx, cancel := context.WithTimeout(x.r.Context(), sourceLimit)
	defer cancel()
	room := int64(maxBody - len(x.req.b))
	for _, s := range x.req.sources {
		data, media, code, denied := x.fetchOne(ctx, s)
		switch {
		case denied != nil:
			x.seen(Event{Code: denied.Reason})
			door.Refuse(w, *denied)
			return false
		case code != "":
			x.refuse(w, code, "url")
			return false
		}
		if room -= int64(base64.StdEncoding.EncodedLen(len(data))); room < 0 {
			x.refuse(w, enforcers.CodeUpCap, "url")
			return false
		}
		x.req.edits = append(x.req.edits, s.inline(media, base64.StdEncoding.EncodeToString(data)))
	}
	return true
}

// fetchOne follows one URL. code says what is wrong with it or its content; denied
// is the gate's no.
func (x *call) fetchOne(ctx context.Context, s source) (data []byte, media, code string, denied *enforcers.Decision) {
	at := s.url
	for range mostHops {
		p, d, ok := x.ask(at)
		switch {
		case p == nil:
			return nil, "", "", &d
		case !ok || p.WouldBlock():
			p.Void(CodeSource) // what no rule allows does not go to a provider, in shadow neither
			return nil, "", CodeSource, nil
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			p.Void(CodeSource)
			return nil, "", CodeSource, nil
		}
		r.Header.Set("Accept", strings.Join(s.types, ", "))
		r.Header.Set("Accept-Encoding", "identity")
		resp, err := x.r.Up.Do(p, r)
		if err != nil {
			return nil, "", CodeFetch, nil // the outcome says why
		}
		to := resp.Header.Get("Location")
		if resp.StatusCode >= 300 && resp.StatusCode < 400 && to != "" {
			_ = resp.Body.Close()
			if at, ok = next(at, to); !ok {
				return nil, "", CodeSource, nil
			}
			continue
		}
		if resp.StatusCode != http.StatusOK || len(resp.Header["Content-Encoding"]) > 0 {
			_ = resp.Body.Close()
			return nil, "", CodeFetch, nil
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, mostOfSource+1))
		if closed := resp.Body.Close(); err == nil {
			err = closed
		}
		// The content says what it is; what the server calls it is nobody's word.
		media := http.DetectContentType(b)
		if err != nil || len(b) > mostOfSource || !slices.Contains(s.types, media) {
			return nil, "", CodeFetch, nil
		}
		return b, media, "", nil
	}
	return nil, "", CodeFetch, nil
}

// next resolves a redirect; only https leads on.
func next(at, to string) (string, bool) {
	base, err := url.Parse(at)
	if err != nil {
		return "", false
	}
	u, err := base.Parse(to)
	if err != nil || u.Scheme != authority.HTTPS {
		return "", false
	}
	u.Fragment = ""
	return u.String(), true
}

// ask has the gate judge one GET of a URL. false: the URL is none that is asked for.
func (x *call) ask(raw string) (*enforcers.Permit, enforcers.Decision, bool) {
	a := x.r.Gate.Action(enforcers.HTTPRequest)
	a.HTTP = &enforcers.HTTP{Method: http.MethodGet, Path: "/", Headers: map[string][]string{}, Body: enforcers.Body{Mode: "none"}}
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Opaque != "" || !strings.EqualFold(u.Scheme, authority.HTTPS) {
		a.HardSet = CodeSource
	} else {
		to, err := authority.ParseHostHeader(authority.HTTPS, u.Host)
		p, ok := door.CanonicalPath(cmp.Or(u.EscapedPath(), "/")) // EG-56, EG-57
		if err != nil || !ok || strings.ContainsFunc(u.RawQuery, func(c rune) bool { return c <= ' ' || c > '~' }) {
			a.HardSet = CodeSource
		}
		a.HTTP.To, a.HTTP.Path, a.HTTP.Query = to, p, u.RawQuery
	}
	p, d := x.r.Gate.Decide(x.r.Context(), a)
	return p, d, a.HardSet == ""
}
