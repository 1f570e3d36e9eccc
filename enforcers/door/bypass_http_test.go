package door_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

const good = "api.good.test"

// inside443 sends raw text inside a well-formed TLS tunnel to the good host.
func inside443(text string) func(*inside) reply {
	return func(in *inside) reply { return in.https(good+":443", good, text) }
}

// second sends an ordinary request and then text on the same connection; the
// reply is the one to text.
func second(text string) func(*inside) reply {
	return func(in *inside) reply {
		c, r, re := in.secure(good+":443", good)
		if c == nil {
			return re
		}
		_, _ = io.WriteString(c, get(good, "/v1/x"))
		if first := read(r, "GET"); first.status != 200 {
			return reply{status: -first.status, err: first.err}
		}
		if _, err := io.WriteString(c, text); err != nil {
			return reply{err: err}
		}
		method, _, _ := strings.Cut(text, " ")
		return read(r, method)
	}
}

func request(line string, fields ...string) string {
	return line + " HTTP/1.1\r\nHost: " + good + "\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
}

// httpRows are about what stands in a request's head and body.
func httpRows(*testing.T) map[string]row {
	misdirected := denied(421, enforcers.CodeMisdirected)
	malformed := denied(400, enforcers.CodeMalformed)
	afterOne := func(w want) want { return w.dialed(1).asked(2) }

	rows := map[string]row{
		"EG-19_port_pivot":            both(inside443(get(good+":8443", "/v1/x")), misdirected),
		"EG-42_fronting":              both(inside443(get("evil.test", "/v1/x")), misdirected),
		"EG-42_fronting_sibling":      both(inside443(get("git.good.test", "/v1/x")), misdirected),
		"EG-42_literal_host":          both(inside443(get("93.184.216.10", "/v1/x")), misdirected),
		"EG-43_later_on_keep_alive":   both(second(get("evil.test", "/v1/x")), afterOne(misdirected)),
		"EG-44_absolute_evil":         both(inside443("GET https://evil.test/v1/x HTTP/1.1\r\nHost: "+good+"\r\n\r\n"), misdirected),
		"EG-44_absolute_evil_twice":   both(inside443("GET https://evil.test/v1/x HTTP/1.1\r\nHost: evil.test\r\n\r\n"), misdirected),
		"EG-44_absolute_other_scheme": both(inside443("GET http://"+good+"/v1/x HTTP/1.1\r\nHost: "+good+"\r\n\r\n"), denied(400, enforcers.CodeBadPath)),
		"EG-44_absolute_same":         both(inside443("GET https://"+good+"/v1/x HTTP/1.1\r\nHost: "+good+"\r\n\r\n"), allowed(200, "egress[0]")),
		"EG-44_connect_inside":        both(inside443("CONNECT evil.test:443 HTTP/1.1\r\nHost: "+good+"\r\n\r\n"), denied(403, enforcers.CodeMethodRefused)),
		"EG-47_h2c_upgrade":           both(inside443(request("GET /v1/x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA")), denied(403, enforcers.CodeUpgradeRefused)),
		"EG-47_prior_knowledge":       both(inside443("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), malformed),
		"EG-47_prior_knowledge_plain": both(func(in *inside) reply { return in.raw("PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") }, malformed),
		"EG-48_two_hosts":             both(inside443(request("GET /v1/x", "Host: evil.test")), malformed),
		"EG-48_two_equal_hosts":       both(inside443(request("GET /v1/x", "Host: "+good)), malformed),
		"EG-48_comma_host":            both(inside443(get(good+", evil.test", "/v1/x")), denied(400, enforcers.CodeBadAuthority)),
		"EG-48_host_space_colon":      both(inside443("GET /v1/x HTTP/1.1\r\nHost : evil.test\r\nHost: "+good+"\r\n\r\n"), malformed),
		"EG-48_folded_host":           both(inside443("GET /v1/x HTTP/1.1\r\nHost: "+good+"\r\n evil.test\r\n\r\n"), malformed),
		"EG-48_no_host":               both(inside443("GET /v1/x HTTP/1.1\r\n\r\n"), malformed),
		"EG-48_empty_host":            both(inside443("GET /v1/x HTTP/1.1\r\nHost:\r\n\r\n"), malformed),
		"EG-49_connect_host_differs": both(func(in *inside) reply {
			return in.raw("CONNECT", "CONNECT "+good+":443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
		}, malformed),
		"EG-49_connect_port_differs": both(func(in *inside) reply {
			return in.raw("CONNECT", "CONNECT "+good+":443 HTTP/1.1\r\nHost: "+good+":80\r\n\r\n")
		}, malformed),
		"EG-49_absolute_host_differs":  both(plain("http://plain.good.test/", "evil.test"), misdirected),
		"EG-49_origin_form_on_door":    both(func(in *inside) reply { return in.raw("GET", get(good, "/v1/x")) }, malformed),
		"EG-49_https_absolute_on_door": both(plain("https://"+good+"/v1/x", good), malformed),
		"EG-49_connect_with_body": both(func(in *inside) reply {
			return in.raw("CONNECT", "CONNECT "+good+":443 HTTP/1.1\r\nHost: "+good+":443\r\nContent-Length: 4\r\n\r\nabcd")
		}, malformed),
		"EG-53_denied_unread": {
			do: func(in *inside) reply {
				c, r, re := in.secure(good+":443", good)
				if c == nil {
					return re
				}
				_, _ = io.WriteString(c, request("POST /admin", "Content-Length: 5", "Expect: 100-continue"))
				re = read(r, "POST")
				if re.status == http.StatusContinue {
					_, _ = io.WriteString(c, "hello")
					re = read(r, "POST")
				}
				return re
			},
			hard: denied(403, "path_not_listed"), shadow: blocked(200, "path_not_listed"),
		},
		"EG-54_trace":        both(inside443(request("TRACE /v1/x")), denied(403, enforcers.CodeMethodRefused)),
		"EG-54_track":        both(inside443(request("TRACK /v1/x")), denied(403, enforcers.CodeMethodRefused)),
		"EG-54_options_star": both(inside443(request("OPTIONS *", "Max-Forwards: 0")), denied(403, enforcers.CodeMethodRefused)),
		"EG-54_trace_plain": both(func(in *inside) reply {
			return in.raw("TRACE", "TRACE http://plain.good.test/ HTTP/1.1\r\nHost: plain.good.test\r\n\r\n")
		}, denied(403, enforcers.CodeMethodRefused)),
		"EG-55_lower_case":  {do: inside443(request("get /v1/x")), hard: denied(403, "method_not_listed"), shadow: blocked(200, "method_not_listed")},
		"EG-55_odd":         {do: inside443(request("GETX /v1/x")), hard: denied(403, "method_not_listed"), shadow: blocked(200, "method_not_listed")},
		"EG-55_pri":         {do: inside443(request("PRI /v1/x")), hard: denied(403, "method_not_listed"), shadow: blocked(200, "method_not_listed")},
		"EG-55_long":        both(inside443(request(strings.Repeat("M", 33)+" /v1/x")), malformed),
		"EG-55_not_a_token": both(inside443(request("GE(T /v1/x")), malformed),
		"EG-62_not_listed": {
			do: inside443(request("GET /v1/x", upgrade...)), hard: denied(403, "upgrade_not_listed"), shadow: blocked(200, "upgrade_not_listed"),
		},
		"EG-62_listed": both(func(in *inside) reply {
			in.out.handle(in.t, echoWebSocket)
			c, r, re := in.secure("ws.good.test:443", "ws.good.test")
			if c == nil {
				return re
			}
			_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: ws.good.test\r\n"+strings.Join(append(upgrade, "\r\n"), "\r\n"))
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != 101 {
				return reply{status: -1, err: err}
			}
			// A masked text frame and a masked close; the echo comes back unmasked.
			_, _ = c.Write([]byte{0x81, 0x84, 0, 0, 0, 0, 'p', 'i', 'n', 'g', 0x88, 0x80, 0, 0, 0, 0})
			back, err := io.ReadAll(r)
			if string(back) != "\x81\x04ping\x88\x00" {
				return reply{status: -2, body: string(back), err: err}
			}
			return reply{status: 101}
		}, allowed(101, "egress[12]")),
		"EG-63_no_key":      both(websocket(upgrade[0], upgrade[1], upgrade[2]), denied(403, enforcers.CodeUpgradeRefused)),
		"EG-63_short_key":   both(websocket(upgrade[0], upgrade[1], upgrade[2], "Sec-WebSocket-Key: eA=="), denied(403, enforcers.CodeUpgradeRefused)),
		"EG-63_version":     both(websocket(upgrade[0], upgrade[1], upgrade[3], "Sec-WebSocket-Version: 8"), denied(403, enforcers.CodeUpgradeRefused)),
		"EG-63_with_body":   both(websocket(append(upgrade, "Content-Length: 1")...), denied(403, enforcers.CodeUpgradeRefused)),
		"EG-63_answers_200": both(websocket(upgrade...), allowed(200, "egress[12]")),
		"EG-63_wrong_accept": both(func(in *inside) reply {
			in.out.handle(in.t, wrongAccept)
			return websocket(upgrade...)(in)
		}, allowed(502, "egress[12]")),
		"EG-93_declared_too_long": both(inside443(request("POST /v1/x", "Content-Length: 104857600")), stopped(413, enforcers.CodeUpCap).asked(0)),
		"EG-93_without_length": both(func(in *inside) reply {
			c, r, re := in.secure(good+":443", good)
			if c == nil {
				return re
			}
			_, _ = io.WriteString(c, request("POST /v1/x", "Transfer-Encoding: chunked"))
			chunk := "8000\r\n" + strings.Repeat("x", 0x8000) + "\r\n"
			for range 40 { // 1.25 MiB; the connection ends before all of it is taken
				if _, err := io.WriteString(c, chunk); err != nil {
					break
				}
			}
			return read(r, "POST")
		}, allowed(413, "egress[0]").ended(enforcers.CodeUpCap)),
		"EG-95_doh_path": soft(inside443(request("GET /dns-query?dns=AAABAAAB")), 403, "path_not_listed"),
	}
	for name, fields := range map[string][]string{
		"EG-50_cl_and_te":        {"Content-Length: 4", "Transfer-Encoding: chunked"},
		"EG-50_te_twice":         {"Transfer-Encoding: chunked", "Transfer-Encoding: chunked"},
		"EG-50_te_list":          {"Transfer-Encoding: gzip, chunked"},
		"EG-50_te_identity":      {"Transfer-Encoding: identity"},
		"EG-50_te_parameter":     {"Transfer-Encoding: chunked;x=y"},
		"EG-50_te_tab":           {"Transfer-Encoding:\tchunked\v"},
		"EG-50_te_space_name":    {"Transfer-Encoding : chunked"},
		"EG-50_two_lengths":      {"Content-Length: 4", "Content-Length: 5"},
		"EG-50_two_same_lengths": {"Content-Length: 4", "Content-Length: 4"},
		"EG-50_length_list":      {"Content-Length: 4, 4"},
		"EG-50_negative":         {"Content-Length: -1"},
		"EG-50_plus":             {"Content-Length: +4"},
		"EG-50_hex":              {"Content-Length: 0x4"},
		"EG-50_zero_padded":      {"Content-Length: 04"},
		"EG-50_huge":             {"Content-Length: 99999999999999999999"},
		"EG-50_empty":            {"Content-Length:"},
		"EG-50_connection_names": {"Content-Length: 4", "Connection: content-length"},
		"EG-51_nul_value":        {"X: a\x00b"},
		"EG-51_bare_cr":          {"X: a\rb"},
		"EG-51_bare_lf":          {"X: a\nY: b"},
		"EG-51_fold":             {"X: a", " b"},
		"EG-51_empty_name":       {": x"},
		"EG-51_no_colon":         {"X"},
		"EG-51_name_space":       {"X Y: z"},
		"EG-51_expectation":      {"Content-Length: 1", "Expect: 200-ok"},
		"EG-51_trailer_length":   {"Transfer-Encoding: chunked", "Trailer: Content-Length"},
		"EG-51_trailer_auth":     {"Transfer-Encoding: chunked", "Trailer: X, Authorization"},
		"EG-51_129_fields":       {strings.Repeat("A: b\r\n", 127) + "A: b"},
		"EG-51_long_head":        {"X: " + strings.Repeat("y", 33<<10)},
	} {
		rows[name] = both(inside443(request("POST /v1/x", fields...)+"abcd"), malformed)
	}
	for name, body := range map[string]string{
		"EG-51_chunk_extension":    "4;x=y\r\nabcd\r\n0\r\n\r\n",
		"EG-51_chunk_extension_lf": "4;x\nabcd\r\n0\r\n\r\n",
		"EG-51_chunk_bare_lf":      "4\nabcd\n0\n\n",
		"EG-51_chunk_end":          "4\r\nabcdX\n0\r\n\r\n",
		"EG-51_chunk_sign":         "+4\r\nabcd\r\n0\r\n\r\n",
		"EG-51_chunk_space":        "4 \r\nabcd\r\n0\r\n\r\n",
		"EG-51_chunk_hex_prefix":   "0x4\r\nabcd\r\n0\r\n\r\n",
		"EG-51_chunk_empty_size":   "\r\nabcd\r\n0\r\n\r\n",
		"EG-51_chunk_huge":         "ffffffffffffffff\r\nabcd\r\n",
		"EG-51_trailer_bare_lf":    "4\r\nabcd\r\n0\r\nX: a\nY: b\r\n\r\n",
		"EG-51_trailer_name":       "4\r\nabcd\r\n0\r\nX Y: b\r\n\r\n",
		"EG-51_long_trailers":      "4\r\nabcd\r\n0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 10) + "\r\n",
	} {
		// The head was fine, so the request was judged and begun; the body ends it.
		w := allowed(400, "egress[0]").ended(enforcers.CodeMalformed)
		rows[name] = both(inside443(request("POST /v1/x", "Transfer-Encoding: chunked")+body), w)
	}
	return rows
}

var upgrade = []string{
	"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
}

func websocket(fields ...string) func(*inside) reply {
	return func(in *inside) reply {
		return in.https("ws.good.test:443", "ws.good.test", "GET /x HTTP/1.1\r\nHost: ws.good.test\r\n"+strings.Join(append(fields, "\r\n"), "\r\n"))
	}
}

// echoWebSocket answers the handshake of RFC 6455's own example, then repeats
// short frames without their masks.
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
	for {
		head := make([]byte, 6)
		if _, err := io.ReadFull(rw, head); err != nil {
			return
		}
		body := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(rw, body); err != nil {
			return
		}
		_, _ = c.Write(append([]byte{head[0], byte(len(body))}, body...))
		if head[0]&15 == 8 {
			return
		}
	}
}

func wrongAccept(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nraw bytes")
}

// pathRows are about paths: what is judged is what is sent.
func pathRows(*testing.T) map[string]row {
	badPath := denied(400, enforcers.CodeBadPath)
	rows := make(map[string]row)
	for name, path := range map[string]string{
		"EG-56_dot_dot":           "/v1/../admin",
		"EG-56_encoded":           "/v1/%2e%2e/admin",
		"EG-56_encoded_upper":     "/v1/%2E%2E/admin",
		"EG-56_half_encoded":      "/v1/.%2e/admin",
		"EG-56_parameter":         "/v1/..;/admin",
		"EG-56_parameter_named":   "/v1/..;x=y/admin",
		"EG-56_parameter_encoded": "/v1/..%3bx/admin",
		"EG-56_single_dot":        "/v1/./x",
		"EG-56_overlong_dots":     "/v1/%c0%ae%c0%ae/admin",
		"EG-56_overlong_slash":    "/v1/x%c0%afadmin",
		"EG-56_overlong_three":    "/v1/%e0%80%ae%e0%80%ae/admin",
		"EG-56_overlong_four":     "/v1/%f0%80%80%ae/admin",
		"EG-56_at_end":            "/v1/x/..",
		"EG-56_control":           "/v1/%00",
		"EG-56_line_end":          "/v1/%0d%0aX:%20y",
		"EG-56_fragment":          "/v1/x#y",
		"EG-56_broken_escape":     "/v1/%2",
		"EG-56_no_escape":         "/v1/%zz",
		"EG-57_slash":             "/v1%2f..%2fadmin",
		"EG-57_slash_plain":       "/v1/a%2Fb",
		"EG-57_backslash":         `/v1\..\admin`,
		"EG-57_encoded_backslash": "/v1%5c..%5cadmin",
		"EG-57_double_slash":      "/v1/a%252fb",
		"EG-57_double_dot":        "/v1/%252e%252e/admin",
		"EG-57_double_hidden":     "/v1/%25%32%65%25%32%65/admin",
	} {
		rows[name] = both(inside443(request("GET "+path)), badPath)
		rows[name+"_plain"] = both(plain("http://plain.good.test"+path, "plain.good.test"), badPath)
	}
	rows["EG-56_without_slash"] = both(inside443(request("GET v1/x")), badPath)
	rows["EG-56_raw_utf8"] = both(inside443(request("GET /v1/ä")), denied(400, enforcers.CodeMalformed))
	rows["EG-58_prefix_boundary"] = row{
		do: inside443(request("GET /v1evil")), hard: denied(403, "path_not_listed"), shadow: blocked(200, "path_not_listed"),
	}
	rows["EG-58_prefix_itself"] = row{
		do: inside443(request("GET /v1")), hard: denied(403, "path_not_listed"), shadow: blocked(200, "path_not_listed"),
	}
	rows["EG-58_case"] = row{
		do: inside443(request("GET /V1/x")), hard: denied(403, "path_not_listed"), shadow: blocked(200, "path_not_listed"),
	}
	rows["EG-58_star"] = both(inside443(request("GET /items/7/comments")), allowed(200, "egress[0]"))
	for name, path := range map[string]string{"two_segments": "/items/7/8/comments", "no_segment": "/items/comments", "below": "/items/7/comments/9"} {
		rows["EG-58_star_"+name] = soft(inside443(request("GET "+path)), 403, "path_not_listed")
	}
	rows["EG-58_star_dots"] = both(inside443(request("GET /items/../comments")), badPath)
	rows["EG-58_star_hidden_slash"] = both(inside443(request("GET /items/7%2f8/comments")), badPath)
	// Written otherwise, the same path: judged and sent in one form.
	for name, path := range map[string]string{
		"EG-56_double_slash":       "//v1//x",
		"EG-56_escaped_unreserved": "/%76%31/%78",
	} {
		rows[name] = both(func(in *inside) reply {
			before := in.out.tally()
			re := inside443(request("GET " + path + "?q=//a%2f.."))(in)
			if sent := in.out.requests(before); len(sent) != 1 || sent[0].RequestURI != "/v1/x?q=//a%2f.." {
				return reply{status: -1, err: fmt.Errorf("sent %v", sent)}
			}
			return re
		}, allowed(200, "egress[0]"))
	}
	rows["EG-57_opted_in"] = both(func(in *inside) reply {
		before := in.out.tally()
		re := in.fetch("npm.good.test", "/@scope%2fname")
		if sent := in.out.requests(before); len(sent) != 1 || sent[0].RequestURI != "/@scope%2Fname" {
			return reply{status: -1, err: fmt.Errorf("sent %v", sent)}
		}
		return re
	}, allowed(200, "egress[9]"))
	rows["EG-57_opted_in_dots"] = both(connectPath("npm.good.test", "/a%2f..%2fb"), badPath)
	return rows
}

func connectPath(host, path string) func(*inside) reply {
	return func(in *inside) reply { return in.fetch(host, path) }
}

// TestBypassMatrixKeepAlive shows that each request on one connection is its own decision.
func TestBypassMatrixKeepAlive(t *testing.T) {
	o := newOutside(t)
	hidden := request("GET /admin")
	each(t, "EG-52_pipelined", o, func(t *testing.T, in *inside) {
		c, r, _ := in.secure(good+":443", good)
		from := in.mark()
		fmt.Fprintf(c, "POST /v1/x HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\n\r\nabcd%s%s", good, hidden, get(good, "/v1/y"))
		var statuses []int
		var last reply
		for range 3 {
			last = read(r, "GET")
			statuses = append(statuses, last.status)
		}
		in.expect(t, from, last, allowed(200, "egress[0]"))
		second, paths := http.StatusForbidden, []string{"/v1/x", "/v1/y"}
		if in.gate.Mode() == receipts.Shadow {
			second, paths = http.StatusOK, []string{"/v1/x", "/admin", "/v1/y"}
		}
		if !slices.Equal(statuses, []int{200, second, 200}) {
			t.Errorf("answers %v", statuses)
		}
		// The hidden one was judged as what it is.
		all := in.rec.all()[from.decisions:]
		if len(all) != 3 || all[1].Decision.Reason != "path_not_listed" || all[1].Decision.Passed != (in.gate.Mode() == receipts.Shadow) {
			t.Errorf("receipts %+v", all)
		}
		var sent []string
		for _, r := range o.requests(from.tally) {
			sent = append(sent, r.RequestURI)
		}
		if !slices.Equal(sent, paths) || o.bodiesSince(from.tally)[0] != "abcd" {
			t.Errorf("outside saw %v", sent)
		}
	})
	each(t, "EG-52_body_is_not_a_request", o, func(t *testing.T, in *inside) {
		c, r, _ := in.secure(good+":443", good)
		from := in.mark()
		fmt.Fprintf(c, "POST /v1/x HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", good, len(hidden), hidden)
		in.expect(t, from, read(r, "POST"), allowed(200, "egress[0]"))
		if sent := o.requests(from.tally); len(sent) != 1 || o.bodiesSince(from.tally)[0] != hidden {
			t.Errorf("outside saw %d requests", len(sent))
		}
	})
	each(t, "EG-53_expectation", o, func(t *testing.T, in *inside) {
		c, r, _ := in.secure(good+":443", good)
		from := in.mark()
		_, _ = io.WriteString(c, request("POST /v1/x", "Content-Length: 5", "Expect: 100-continue"))
		line, err := r.ReadString('\n')
		if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("%q %v", line, err)
		}
		_, _ = r.ReadString('\n')
		_, _ = io.WriteString(c, "hello")
		in.expect(t, from, read(r, "POST"), allowed(200, "egress[0]"))
	})
	each(t, "EG-43_connection_ends", o, func(t *testing.T, in *inside) {
		c, r, _ := in.secure(good+":443", good)
		from := in.mark()
		_, _ = io.WriteString(c, get("evil.test", "/")+get(good, "/v1/x"))
		in.expect(t, from, read(r, "GET"), denied(421, enforcers.CodeMisdirected))
		if _, err := r.ReadByte(); err == nil {
			t.Error("the connection lived on")
		}
	})
}

// each runs a case that is more than one row in both modes, each with a session
// of its own, and ends it.
func each(t *testing.T, name string, o *outside, run func(t *testing.T, in *inside)) {
	for _, mode := range modes {
		t.Run(name+"/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode, inject: connections(t)})
			run(t, in)
			in.end()
			in.covered(t)
		})
	}
}

// TestBypassMatrixRedirects shows that a redirect is the client's business, and that where
// it leads is judged anew.
func TestBypassMatrixRedirects(t *testing.T) {
	o := newOutside(t)
	for name, c := range map[string]struct {
		status   int
		location string
		next     row
	}{
		"EG-59_to_denied":    {302, "https://evil.test/", soft(connect("evil.test"), 403, "host_not_listed")},
		"EG-59_to_metadata":  {302, "http://169.254.169.254/latest/", both(plainHost("169.254.169.254"), denied(403, enforcers.CodeIPLiteral))},
		"EG-60_to_same_host": {307, "/admin", soft(inside443(request("GET /admin")), 403, "path_not_listed")},
	} {
		each(t, name, o, func(t *testing.T, in *inside) {
			o.handle(t, func(w http.ResponseWriter, r *http.Request) {
				if r.RequestURI == "/v1/x" && r.Host == good {
					http.Redirect(w, r, c.location, c.status)
				}
			})
			from := in.mark()
			re := in.fetch(good, "/v1/x")
			in.hangUp()
			in.expect(t, from, re, allowed(c.status, "egress[0]"))
			if re.header.Get("Location") != c.location {
				t.Errorf("client saw %q", re.header.Get("Location"))
			}
			if n := o.tally().requests - from.requests; n != 1 {
				t.Errorf("outside saw %d requests", n)
			}
			w := c.next.in(in.gate.Mode())
			if name == "EG-60_to_same_host" {
				w = w.kept() // of the pool, if it is let through at all
			}
			from = in.mark()
			in.expect(t, from, c.next.do(in), w)
		})
	}
}

// TestBypassMatrixHeaders shows what is kept from either side.
func TestBypassMatrixHeaders(t *testing.T) {
	o := newOutside(t)
	o.handle(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Alternate-Protocol", "443:quic")
		w.Header().Set("X-Kept", "yes")
		w.Header().Set("Keep-Alive", "timeout=5")
	})
	ask := func(t *testing.T, in *inside) (client, outside http.Header) {
		from := in.mark()
		re := in.https(good+":443", good, request("GET /v1/x",
			"Proxy-Authorization: Basic c2Vzc2lvbg==", "Proxy-Connection: keep-alive", "X-Hop: 1", "Connection: X-Hop, keep-alive",
			"Keep-Alive: 5", "TE: trailers", "X-Kept: yes"))
		in.expect(t, from, re, allowed(200, "egress[0]"))
		if re.header.Get("X-Kept") != "yes" {
			t.Error("an ordinary field was lost on the way in")
		}
		sent := o.requests(from.tally)[0].Header
		if sent.Get("X-Kept") != "yes" {
			t.Error("an ordinary field was lost on the way out")
		}
		return re.header, sent
	}
	each(t, "EG-61_hints_at_other_endpoints", o, func(t *testing.T, in *inside) {
		client, _ := ask(t, in)
		for _, name := range []string{"Alt-Svc", "Alternate-Protocol", "Keep-Alive"} {
			if v := client.Get(name); v != "" {
				t.Errorf("the client got %s: %s", name, v)
			}
		}
	})
	each(t, "EG-71_nothing_of_the_proxy_goes_out", o, func(t *testing.T, in *inside) {
		_, sent := ask(t, in)
		for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Hop", "Keep-Alive", "Te", "User-Agent", "X-Forwarded-For", "Via"} {
			if v := sent.Get(name); v != "" {
				t.Errorf("the outside got %s: %s", name, v)
			}
		}
		for name := range sent {
			if strings.Contains(strings.ToLower(fmt.Sprint(sent[name])), "s-1") {
				t.Errorf("%s names the session", name)
			}
		}
	})
}
