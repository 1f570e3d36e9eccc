package authority

import (
	"errors"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	long := strings.Repeat("abcdefgh.", 27) + "abcdefghij" // 253 bytes
	for name, c := range map[string]struct {
		in, want string
		ip       bool
		err      error
	}{
		"plain":                        {in: "api.good.test", want: "api.good.test"},
		"EG-06_case":                   {in: "API.Good.TEST", want: "api.good.test"},
		"EG-07_root_dot":               {in: "api.good.test.", want: "api.good.test"},
		"EG-07_two_root_dots":          {in: "api.good.test..", err: ErrEmpty},
		"EG-07_only_dot":               {in: ".", err: ErrEmpty},
		"empty":                        {in: "", err: ErrEmpty},
		"EG-08_leading_dot":            {in: ".pkg.test", err: ErrEmpty},
		"EG-08_empty_label":            {in: "a..pkg.test", err: ErrEmpty},
		"EG-09_brackets":               {in: "[api.good.test]", err: ErrByte},
		"EG-10_nul":                    {in: "evil.test\x00.pkg.test", err: ErrByte},
		"EG-11_cr":                     {in: "evil.test\r.pkg.test", err: ErrByte},
		"EG-11_lf":                     {in: "evil.test\n.pkg.test", err: ErrByte},
		"EG-11_space":                  {in: "evil.test .pkg.test", err: ErrByte},
		"EG-11_tab":                    {in: "evil.test\t.pkg.test", err: ErrByte},
		"EG-11_backslash":              {in: `evil.test\.pkg.test`, err: ErrByte},
		"EG-12_percent":                {in: "evil.test%2e.pkg.test", err: ErrByte},
		"EG-13_userinfo":               {in: "u@api.good.test", err: ErrByte},
		"EG-14_fullwidth":              {in: "ａpi.good.test", err: ErrByte},
		"EG-14_ideographic_dot":        {in: "api。good.test", err: ErrByte},
		"EG-14_latin1":                 {in: "caf\xe9.test", err: ErrByte},
		"EG-15_alabel":                 {in: "xn--bcher-kva.test", want: "xn--bcher-kva.test"},
		"EG-15_alabel_case":            {in: "XN--BCHER-KVA.test", want: "xn--bcher-kva.test"},
		"EG-15_alabel_of_ascii":        {in: "xn--abc-.test", err: ErrHyphen},
		"EG-15_alabel_broken":          {in: "xn--a.test", err: ErrALabel},
		"EG-15_alabel_empty":           {in: "xn--.test", err: ErrHyphen},
		"EG-15_alabel_not_canonical":   {in: "xn--BCHER-KVa9.test", err: ErrALabel},
		"hyphens_three_four":           {in: "r3---sn-x.test", want: "r3---sn-x.test"},
		"EG-16_underscore":             {in: "_x.pkg.test", err: ErrByte},
		"EG-16_label_63":               {in: strings.Repeat("a", 63) + ".test", want: strings.Repeat("a", 63) + ".test"},
		"EG-16_label_64":               {in: strings.Repeat("a", 64) + ".test", err: ErrLength},
		"EG-16_name_253":               {in: long, want: long},
		"EG-16_name_253_root_dot":      {in: long + ".", want: long},
		"EG-16_name_254":               {in: "a" + long, err: ErrLength},
		"EG-16_hyphen_first":           {in: "-a.test", err: ErrHyphen},
		"EG-16_hyphen_last":            {in: "a-.test", err: ErrHyphen},
		"EG-20_v4":                     {in: "93.184.216.34", want: "93.184.216.34", ip: true},
		"EG-20_v6":                     {in: "2606:2800::0:1", want: "2606:2800::1", ip: true},
		"EG-21_decimal":                {in: "2130706433", err: ErrNumeric},
		"EG-21_octal":                  {in: "0177.0.0.1", err: ErrNumeric},
		"EG-21_leading_zero":           {in: "127.0.0.01", err: ErrNumeric},
		"EG-21_hex":                    {in: "0x7f.1", err: ErrNumeric},
		"EG-21_hex_last":               {in: "a.0x7F", err: ErrNumeric},
		"EG-21_hex_nothing":            {in: "a.0x", err: ErrNumeric},
		"EG-21_short":                  {in: "127.1", err: ErrNumeric},
		"EG-21_zero":                   {in: "0", err: ErrNumeric},
		"EG-21_root_dot":               {in: "127.0.0.1.", err: ErrNumeric},
		"EG-21_number_in_the_middle":   {in: "127.test", want: "127.test"},
		"EG-23_mapped":                 {in: "::ffff:127.0.0.1", want: "127.0.0.1", ip: true},
		"EG-25_zone":                   {in: "fe80::1%eth0", err: ErrZone},
		"EG-25_colon_but_no_address":   {in: "a:b", err: ErrBrackets},
		"single_label":                 {in: "localhost", want: "localhost"},
		"control":                      {in: "a\x7f.test", err: ErrByte},
		"comma":                        {in: "a.test,b.test", err: ErrByte},
		"slash":                        {in: "a.test/", err: ErrByte},
		"star":                         {in: "*.test", err: ErrByte},
		"mapped_dotted_hex":            {in: "::ffff:7f00:1", want: "127.0.0.1", ip: true},
		"hex_address_is_a_label_as_is": {in: "0x7g.test", want: "0x7g.test"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ip, err := ParseHost(c.in)
			if got != c.want || ip != c.ip || !errors.Is(err, c.err) {
				t.Errorf("ParseHost(%q) = %q, %t, %v; want %q, %t, %v", c.in, got, ip, err, c.want, c.ip, c.err)
			}
		})
	}
}

func TestParseHostPort(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		err      error
	}{
		"name":                  {in: "Api.Good.Test:443", want: "tcp://api.good.test:443"},
		"v4":                    {in: "93.184.216.34:80", want: "tcp://93.184.216.34:80"},
		"v6":                    {in: "[2606:2800::1]:443", want: "tcp://[2606:2800::1]:443"},
		"highest_port":          {in: "a.test:65535", want: "tcp://a.test:65535"},
		"EG-09_bracketed_name":  {in: "[api.good.test]:443", err: ErrBrackets},
		"EG-09_bracketed_v4":    {in: "[127.0.0.1]:443", err: ErrBrackets},
		"EG-09_half_bracket":    {in: "[::1:443", err: ErrBrackets},
		"EG-09_late_bracket":    {in: "a]:443", err: ErrBrackets},
		"EG-09_bare_v6":         {in: "2606:2800::1:443", err: ErrBrackets},
		"EG-13_userinfo":        {in: "u:p@a.test:443", err: ErrBrackets},
		"EG-13_user":            {in: "u@a.test:443", err: ErrByte},
		"EG-17_no_port":         {in: "a.test", err: ErrPort},
		"EG-17_empty_port":      {in: "a.test:", err: ErrPort},
		"EG-17_zero":            {in: "a.test:0", err: ErrPort},
		"EG-17_65536":           {in: "a.test:65536", err: ErrPort},
		"EG-17_six_digits":      {in: "a.test:100000", err: ErrPort},
		"EG-17_plus":            {in: "a.test:+443", err: ErrPort},
		"EG-17_leading_zero":    {in: "a.test:0443", err: ErrPort},
		"EG-17_name":            {in: "a.test:https", err: ErrPort},
		"EG-17_space":           {in: "a.test: 443", err: ErrPort},
		"EG-25_zone":            {in: "[fe80::1%eth0]:443", err: ErrZone},
		"empty_host":            {in: ":443", err: ErrEmpty},
		"path":                  {in: "/x", err: ErrPort},
		"url":                   {in: "https://a.test:443", err: ErrBrackets},
		"EG-23_mapped_literal":  {in: "[::ffff:127.0.0.1]:443", want: "tcp://127.0.0.1:443"},
		"bracket_with_no_colon": {in: "[]:443", err: ErrBrackets},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ParseHostPort(TCP, c.in)
			if a.String() != c.want || !errors.Is(err, c.err) {
				t.Errorf("ParseHostPort(%q) = %q, %v; want %q, %v", c.in, a, err, c.want, c.err)
			}
		})
	}
}

func TestParseHostHeader(t *testing.T) {
	for name, c := range map[string]struct {
		scheme, in, want string
		err              error
	}{
		"default_https": {scheme: HTTPS, in: "a.test", want: "https://a.test:443"},
		"default_http":  {scheme: HTTP, in: "a.test", want: "http://a.test:80"},
		"port":          {scheme: HTTPS, in: "a.test:8443", want: "https://a.test:8443"},
		"v6":            {scheme: HTTPS, in: "[2606::1]", want: "https://[2606::1]:443"},
		"v6_port":       {scheme: HTTPS, in: "[2606::1]:1", want: "https://[2606::1]:1"},
		"bare_v6":       {scheme: HTTPS, in: "2606::1", err: ErrBrackets},
		"list":          {scheme: HTTPS, in: "a.test, b.test", err: ErrByte},
		"empty":         {scheme: HTTPS, in: "", err: ErrEmpty},
		"tcp":           {scheme: TCP, in: "a.test", err: ErrScheme},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ParseHostHeader(c.scheme, c.in)
			if a.String() != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v; want %q, %v", a, err, c.want, c.err)
			}
		})
	}
}

func TestAuthority(t *testing.T) {
	a, err := New(HTTPS, "API.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	same, _ := ParseHostPort(HTTPS, "api.good.test:443")
	if a != same {
		t.Error("two spellings of one place differ")
	}
	if a.Scheme() != HTTPS || a.Host() != "api.good.test" || a.Port() != 443 || a.IsIP() || a.IsZero() {
		t.Errorf("%+v", a)
	}
	if got := a.HostHeader(); got != "api.good.test" {
		t.Errorf("host header %q", got)
	}
	b := a.WithScheme(HTTP)
	if got := b.HostHeader(); got != "api.good.test:443" || !a.SamePlace(b) || a == b {
		t.Errorf("%q", got)
	}
	if got := a.WithScheme("ftp"); !got.IsZero() {
		t.Error("an unknown scheme was taken")
	}
	var zero Authority
	if zero.String() != "" || zero.HostPort() != "" || zero.SamePlace(zero) || !zero.WithScheme(TCP).IsZero() {
		t.Error("the zero Authority is somewhere")
	}
	if _, ok := a.Addr(); ok {
		t.Error("a name has an address")
	}
	lit, err := New(HTTPS, "93.184.216.34", 443)
	if addr, ok := lit.Addr(); err != nil || !ok || addr.String() != "93.184.216.34" || !lit.IsIP() {
		t.Errorf("%v %v", lit, err)
	}
	six, _ := New(HTTPS, "2606::1", 443)
	for s, want := range map[string]bool{"api.good.test": true, "API.good.test.": true, "api.good.test:443": true, "api.good.test:80": false, "evil.test": false, "": false} {
		if ok, err := a.NamedBy(s); ok != want || (err != nil) != (s == "") {
			t.Errorf("%q: %t, %v", s, ok, err) // EG-19
		}
	}
	for _, no := range []Authority{{}, b.WithScheme(TCP)} {
		if ok, err := no.NamedBy(no.HostHeader()); ok || err == nil {
			t.Errorf("%q names %v in a field of HTTP", no.HostHeader(), no)
		}
	}
	if got := six.HostHeader(); got != "[2606::1]" {
		t.Errorf("host header %q", got)
	}
	if _, err := New("ftp", "a.test", 21); !errors.Is(err, ErrScheme) {
		t.Errorf("scheme: %v", err)
	}
	if _, err := New(TCP, "a.test", 0); !errors.Is(err, ErrPort) {
		t.Errorf("port: %v", err)
	}
}

func TestPattern(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no []string }{
		"api.good.test": {[]string{"api.good.test"}, []string{"x.api.good.test", "good.test", "api.good.test.evil.test", "evilapi.good.test"}},
		"*.pkg.test":    {[]string{"a.pkg.test", "a-b.pkg.test"}, []string{"pkg.test", "a.b.pkg.test", "evilpkg.test", "a.pkg.test.evil.test", "xn--bcher-kva.pkg.test", ""}},
		"**.deep.test":  {[]string{"a.deep.test", "a.b.c.deep.test"}, []string{"deep.test", "evildeep.test", "xn--bcher-kva.deep.test", "a.xn--bcher-kva.deep.test"}},
		"bücher.test":   {[]string{"xn--bcher-kva.test"}, []string{"bcher.test"}},
		"API.Good.Test": {[]string{"api.good.test"}, nil},
		"93.184.216.34": {[]string{"93.184.216.34"}, []string{"93.184.216.35"}},
		"2606:2800::01": {[]string{"2606:2800::1"}, nil},
	} {
		t.Run(pattern, func(t *testing.T) {
			p, err := ParsePattern(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range c.yes {
				if !p.MatchHost(h) {
					t.Errorf("does not match %q", h)
				}
			}
			for _, h := range c.no {
				if p.MatchHost(h) {
					t.Errorf("matches %q", h)
				}
			}
			again, err := ParsePattern(p.String())
			if err != nil || again != p {
				t.Errorf("%q is not read back: %v %v", p, again, err)
			}
		})
	}
	var zero Pattern
	if a, _ := New(TCP, "a.test", 1); zero.Match(a) || zero.Match(Authority{}) || zero.MatchHost("") {
		t.Error("the zero Pattern matches")
	}
}

func TestPatternRefused(t *testing.T) {
	for name, c := range map[string]struct {
		in  string
		err error
	}{
		"EG-101_empty":        {"", ErrPatternBlank},
		"EG-101_star":         {"*", ErrPatternWide},
		"EG-101_tld":          {"*.com", ErrPatternWide},
		"EG-101_tld_dot":      {"*.com.", ErrPatternWide},
		"EG-101_deep_tld":     {"**.com", ErrPatternWide},
		"EG-101_three_stars":  {"***.a.test", ErrPatternStar},
		"EG-101_part_label":   {"*a.b.test", ErrPatternStar},
		"EG-101_middle":       {"a.*.test", ErrPatternStar},
		"EG-101_twice":        {"*.*.test", ErrPatternStar},
		"EG-101_newline":      {"a.test\nb.test", ErrPatternHost},
		"EG-101_space":        {"a.test b.test", ErrPatternHost},
		"EG-101_star_literal": {"*.184.216.34", ErrPatternHost},
		"EG-101_port":         {"a.test:443", ErrPatternHost},
		"EG-101_cidr":         {"0.0.0.0/0", ErrPatternHost},
		"EG-101_idna":         {"a\u200d.test", ErrPatternHost},
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := ParsePattern(c.in); !errors.Is(err, c.err) {
				t.Errorf("ParsePattern(%q) = %q, %v; want %v", c.in, p, err, c.err)
			}
		})
	}
}
