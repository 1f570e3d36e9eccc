package gatekeeper

import (
	"regexp"
	"strings"
)

// Classes of what the scanner takes out of delivered values; the counts stand
// in the session's receipt.
const (
	redHeader = "header"
	redCookie = "cookie"
	redEnv    = "env"
	redURL    = "url"
	redToken  = "token"
	redKey    = "key"
)

// scanners find values that are shaped like a credential. group is the part
// that is replaced, so that the name beside it stays readable. They run in
// order: a whole key block before the lines in it.
var scanners = []struct {
	class string
	group int
	form  *regexp.Regexp
}{
	{redKey, 0, regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)},
	{redHeader, 1, regexp.MustCompile(`(?i)\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?((?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s"',;]{4,})`)},
	{redCookie, 1, regexp.MustCompile(`(?i)\b(?:set-)?cookie["']?\s*:\s*["']?([^\r\n"']{4,})`)},
	{redHeader, 1, regexp.MustCompile(`(?i)\b(?:x-[a-z0-9-]*(?:key|token|auth|secret|signature)[a-z0-9-]*|api-key|private-token|job-token)["']?\s*[:=]\s*["']?([^\s"',;]{4,})`)},
	{redHeader, 1, regexp.MustCompile(`(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})`)},
	// PASS: TestX is a test's line and no assignment: a colon needs a compound name.
	{redEnv, 1, regexp.MustCompile(`\b(?:[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|CREDENTIALS?|PAT|DSN)[A-Z0-9_]*["']?\s*=|(?:[A-Z0-9]+_)+(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|CREDENTIALS?|PAT|DSN)[A-Z0-9_]*["']?\s*:)\s*["']?([^\s"']{4,})`)},
	{redCookie, 1, regexp.MustCompile(`(?i)\b[a-z0-9_.-]*(?:sess|sid|auth|token|jwt|csrf)[a-z0-9_.-]*=([^\s;,"'&]{12,})`)},
	{redURL, 1, regexp.MustCompile(`[a-z][a-z0-9+.-]*://[^\s/:@"']*:([^\s/@"']+)@`)},
	{redToken, 0, regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|` +
		`AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{20,}|lin_(?:api|oauth)_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{30,}|sntry[su]_[A-Za-z0-9_=/+-]{16,}|` +
		`gatehouse_ph_[A-Za-z0-9_-]+|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)`)},
}

// secretName is a JSON key or header name whose whole value is a credential.
var secretName = regexp.MustCompile(`(?i)^(?:(?:proxy-)?authorization|(?:set-)?cookies?|password|passwd|secret|client_secret|private_key|access_token|refresh_token|id_token|api_?key|x-[a-z0-9-]*(?:key|token|auth|secret)[a-z0-9-]*)$`)

// scrubber removes credential-shaped values and counts them by class. Whatever
// a session is shown goes through it: a stranger's paste is as dangerous inside
// as a key of ours, and a log line that an agent repeats is hard to take back.
type scrubber struct{ counts map[string]uint64 }

func (s *scrubber) hit(class string) string {
	if s.counts == nil {
		s.counts = map[string]uint64{}
	}
	s.counts[class]++
	return "[redacted " + class + "]"
}

// text scrubs one string.
func (s *scrubber) text(in string) string {
	for _, sc := range scanners {
		in = s.replace(in, sc.form, sc.group, sc.class)
	}
	return in
}

func (s *scrubber) replace(in string, form *regexp.Regexp, group int, class string) string {
	found := form.FindAllStringSubmatchIndex(in, -1)
	if len(found) == 0 {
		return in
	}
	var out strings.Builder
	at := 0
	for _, m := range found {
		from, to := m[2*group], m[2*group+1]
		if strings.HasPrefix(in[from:to], "[redacted") {
			continue
		}
		out.WriteString(in[at:from])
		out.WriteString(s.hit(class))
		at = to
	}
	out.WriteString(in[at:])
	return out.String()
}

// tree scrubs every string of a JSON value, keys aside, and the whole value of
// a member or a name-value pair that is named like a credential.
func (s *scrubber) tree(v any) any {
	switch x := v.(type) {
	case string:
		return s.text(x)
	case map[string]any:
		for k, item := range x {
			if _, ok := item.(string); ok && secretName.MatchString(k) {
				x[k] = s.hit(redHeader)
			} else {
				x[k] = s.tree(item)
			}
		}
	case []any:
		if len(x) == 2 {
			name, isName := x[0].(string)
			if _, isText := x[1].(string); isName && isText && secretName.MatchString(name) {
				x[1] = s.hit(redHeader)
				return x
			}
		}
		for i, item := range x {
			x[i] = s.tree(item)
		}
	}
	return v
}
