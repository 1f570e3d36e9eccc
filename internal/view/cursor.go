package view

import (
	"encoding/base64"
	"strconv"
	"strings"

	"gatehouse/internal/problem"
)

// A cursor names the stream position after which a page starts. Clients treat
// it as opaque; its letter stops the cursor of one list being used in another.
func cursor(list byte, seq uint64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(string(list) + strconv.FormatUint(seq, 36)))
}

// parseCursor returns 0 for "".
func parseCursor(list byte, s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	bad := problem.New(problem.Usage, "cursor not understood", "Take the cursor from the page before, or leave it out.")
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return 0, bad
	}
	digits, ok := strings.CutPrefix(string(b), string(list))
	if !ok {
		return 0, bad
	}
	seq, err := strconv.ParseUint(digits, 36, 64)
	if err != nil || seq == 0 || strconv.FormatUint(seq, 36) != digits {
		return 0, bad
	}
	return seq, nil
}
