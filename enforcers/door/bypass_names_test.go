package door_test

import (
	"net/http"
	"strings"

	"gatehouse/enforcers"
)

// connect asks for a tunnel and, when it opens, sends the ordinary request.
func connect(host string) func(*inside) reply {
	return func(in *inside) reply { return in.fetch(host, "/v1/x") }
}

// rawConnect sends a CONNECT line as it stands.
func rawConnect(target string) func(*inside) reply {
	return func(in *inside) reply {
		return in.raw(http.MethodConnect, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	}
}

// plain sends an absolute-form request.
func plain(url, host string) func(*inside) reply {
	return func(in *inside) reply { return in.raw("GET", "GET "+url+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n") }
}

// plainHost sends host in an absolute-form request and in its Host field.
func plainHost(host string) func(*inside) reply { return plain("http://"+host+"/", host) }

func nameRows() map[string]row {
	const notListed = "host_not_listed"
	badName := denied(400, enforcers.CodeBadAuthority).at(enforcers.RuleHardSet)
	malformed := denied(400, enforcers.CodeMalformed).at(enforcers.RuleHardSet)
	label64 := strings.Repeat("a", 64) + ".pkg.test"
	name254 := strings.Repeat("abcdefg.", 30) + "aaaaa.pkg.test"

	rows := map[string]row{
		"EG-01_not_listed":           soft(connect("evil.test"), 403, notListed),
		"EG-01_plain_http":           soft(plainHost("evil.test"), 403, notListed),
		"EG-02_suffix_lookalike":     soft(connect("evilpkg.test"), 403, notListed),
		"EG-03_prefix_lookalike":     soft(connect("api.good.test.evil.test"), 403, notListed),
		"EG-04_wildcard_apex":        soft(connect("pkg.test"), 403, notListed),
		"EG-05_deep_under_one_star":  soft(connect("a.b.pkg.test"), 403, notListed),
		"EG-05_deep_under_two_stars": both(connect("a.b.deep.test"), allowed(200, "egress[2]")),
		"EG-06_case":                 both(connect("API.GOOD.TEST"), allowed(200, "egress[0]")),
		"EG-07_trailing_dot":         both(connect("api.good.test."), allowed(200, "egress[0]")),
		"EG-07_trailing_dot_evil":    soft(connect("evil.test."), 403, notListed),
		"EG-07_two_dots":             both(rawConnect("api.good.test..:443"), badName),
		"EG-08_leading_dot":          both(rawConnect(".pkg.test:443"), badName),
		"EG-08_empty_label":          both(rawConnect("a..pkg.test:443"), badName),
		"EG-08_plain":                both(plainHost("a..pkg.test"), badName),
		"EG-09_bracketed_name":       both(rawConnect("[api.good.test]:443"), badName),
		"EG-09_plain":                both(plainHost("[api.good.test]"), badName),
		"EG-10_nul":                  both(rawConnect("evil.test\x00.pkg.test:443"), malformed),
		"EG-10_nul_plain":            both(plainHost("evil.test\x00.pkg.test"), malformed),
		"EG-11_cr":                   both(rawConnect("evil.test\rX.pkg.test:443"), malformed),
		"EG-11_lf":                   both(rawConnect("evil.test\nX.pkg.test:443"), malformed),
		"EG-11_space":                both(rawConnect("evil.test .pkg.test:443"), malformed),
		"EG-11_tab":                  both(rawConnect("evil.test\t.pkg.test:443"), malformed),
		"EG-11_backslash":            both(rawConnect(`evil.test\.pkg.test:443`), badName),
		"EG-11_control":              both(rawConnect("evil.test\x1f.pkg.test:443"), malformed),
		"EG-12_encoded_dot":          both(rawConnect("evil.test%2e.pkg.test:443"), badName),
		"EG-12_encoded_nul":          both(rawConnect("evil.test%00.pkg.test:443"), badName),
		"EG-12_plain":                both(plainHost("evil.test%2e.pkg.test"), badName),
		"EG-13_userinfo_evil":        both(rawConnect("api.good.test@evil.test:443"), badName),
		"EG-13_userinfo_good":        both(rawConnect("u:p@api.good.test:443"), badName),
		"EG-13_userinfo_plain":       both(plain("http://u:p@plain.good.test/", "plain.good.test"), badName),
		"EG-14_fullwidth":            both(rawConnect("ａpi.good.test:443"), malformed),
		"EG-14_ideographic_dot":      both(rawConnect("api。good.test:443"), malformed),
		"EG-14_alabel_under_star":    soft(connect("xn--bcher-kva.pkg.test"), 403, notListed),
		"EG-15_homograph":            soft(connect("xn--pi-7kc.good.test"), 403, notListed),
		"EG-15_broken_alabel":        both(rawConnect("xn--a.good.test:443"), badName),
		"EG-16_underscore":           both(rawConnect("_x.pkg.test:443"), badName),
		"EG-16_label_64":             both(rawConnect(label64+":443"), badName),
		"EG-16_name_254":             both(rawConnect(name254+":443"), badName),
		"EG-18_ssh_port":             both(rawConnect("api.good.test:22"), denied(403, "port_not_listed")),
		"EG-18_other_port":           both(rawConnect("api.good.test:8443"), denied(403, "port_not_listed")),
		"EG-18_unlisted_host":        {do: rawConnect("evil.test:22"), hard: denied(403, notListed), shadow: denied(403, enforcers.CodePort)},
		"EG-20_literal":              both(rawConnect("93.184.216.99:443"), denied(403, enforcers.CodeIPLiteral)),
		"EG-20_listed_literal": both(func(in *inside) reply {
			return in.https("93.184.216.34:443", "", get("93.184.216.34", "/"))
		}, allowed(200, "egress[6]").asked(0)),
		"EG-20_listed_literal_other_port": {
			do:   rawConnect("93.184.216.34:80"),
			hard: denied(403, "port_not_listed"), shadow: denied(403, enforcers.CodeIPLiteral),
		},
	}
	for name, target := range map[string]string{
		"none": "api.good.test", "zero": "api.good.test:0", "65536": "api.good.test:65536", "plus": "api.good.test:+443",
		"leading_zero": "api.good.test:0443", "name": "api.good.test:https", "empty": "api.good.test:",
	} {
		rows["EG-17_port_"+name] = both(rawConnect(target), badName)
	}
	for name, host := range map[string]string{
		"decimal": "2130706433", "octal": "0177.0.0.1", "hex": "0x7f.1", "short": "127.1", "zero": "0", "hex_whole": "0x7f000001",
		"trailing_dot": "127.0.0.1.",
	} {
		rows["EG-21_"+name] = both(rawConnect(host+":443"), badName)
		rows["EG-21_plain_"+name] = both(plainHost(host), badName)
	}
	return rows
}
