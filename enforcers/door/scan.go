package door

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// placeholderForms are the ways in which a placeholder's beginning may be
// written: as it is, and in the base64 of a longer text, whose letters depend
// on where in it the placeholder begins.
var placeholderForms = func() []string {
	forms := []string{placeholderPrefix}
	for shift := range 3 {
		e := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + placeholderPrefix))
		from, to := (shift*8+5)/6, (shift+len(placeholderPrefix))*8/6
		forms = append(forms, e[from:to])
	}
	return forms
}()

// mentions reports whether something like a placeholder stands in b, also
// behind percent escapes and those of JSON.
func mentions(b []byte) bool {
	return holds(b) || (bytes.IndexByte(b, '%') >= 0 || bytes.IndexByte(b, '\\') >= 0) && holds(loosen(b))
}

func holds(b []byte) bool {
	return slices.ContainsFunc(placeholderForms, func(f string) bool { return bytes.Contains(b, []byte(f)) })
}

// mentionsText is mentions without a copy of what a head is full of.
func mentionsText(s string) bool {
	return slices.ContainsFunc(placeholderForms, func(f string) bool { return strings.Contains(s, f) }) ||
		(strings.IndexByte(s, '%') >= 0 || strings.IndexByte(s, '\\') >= 0) && holds(loosen([]byte(s)))
}

// loosen undoes %XX and \u00XX. What does not decode stays.
func loosen(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '%' && i+2 < len(b):
			if c, ok := hexByte(b[i+1], b[i+2]); ok {
				out = append(out, c)
				i += 2
				continue
			}
		case b[i] == '\\' && i+5 < len(b) && b[i+1] == 'u' && b[i+2] == '0' && b[i+3] == '0':
			if c, ok := hexByte(b[i+4], b[i+5]); ok {
				out = append(out, c)
				i += 5
				continue
			}
		}
		out = append(out, b[i])
	}
	return out
}

func hexByte(hi, lo byte) (byte, bool) {
	h, ok := unhex(hi)
	l, ok2 := unhex(lo)
	return h<<4 | l, ok && ok2
}

const (
	wholeBody  = 64 << 10 // a body up to this size is read and scanned before anything is dialed
	unzipLimit = 1 << 20
	maxEscaped = 6 * 32 // the longest form of a placeholder's beginning: every byte as \u00XX
)

// scan looks for placeholders in the request's body (EG-74). A short body is
// looked through whole, and unzipped, before it goes on; a long one as it
// passes.
func (r *Request) scan(connection string) error {
	if r.ContentLength == 0 {
		return nil
	}
	code := enforcers.CodePlaceholderHost
	if connection != "" {
		code = enforcers.CodePlaceholderPlace
	}
	encoded := len(r.Header["Content-Encoding"]) > 0
	if r.ContentLength < 0 || r.ContentLength > wholeBody {
		if encoded && connection != "" {
			return problem.New(enforcers.CodeBodyNotInspected, "the body is encoded and too long to be looked through", "")
		}
		r.Body = &scanned{ReadCloser: r.Body, code: code}
		return nil
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	plain := b
	if encoded {
		plain, err = unzip(b, r.Header.Get("Content-Encoding"))
		if err != nil && connection != "" {
			return problem.Wrap(err, enforcers.CodeBodyNotInspected, "the body's encoding hides what it holds", "")
		}
	}
	if mentions(b) || mentions(plain) {
		return placed(code)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

func placed(code string) error {
	return problem.New(problem.Code(code), "the body holds a placeholder", "")
}

func unzip(b []byte, encoding string) ([]byte, error) {
	if !strings.EqualFold(encoding, "gzip") && !strings.EqualFold(encoding, "x-gzip") {
		return nil, errors.New("unknown encoding")
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, unzipLimit+1))
	if err == nil && len(plain) > unzipLimit {
		err = errors.New("too long unzipped")
	}
	return plain, err
}

// scanned looks through a body as it passes. A match that begins in one read
// and ends in the next is found before its end goes on.
type scanned struct {
	io.ReadCloser
	code string
	tail []byte
	err  error
}

func (s *scanned) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.ReadCloser.Read(p)
	window := append(s.tail, p[:n]...)
	if n > 0 && mentions(window) {
		s.err = placed(s.code)
		return 0, s.err
	}
	s.tail = bytes.Clone(window[max(0, len(window)-maxEscaped):])
	return n, err
}
