package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/authority"
)

func FuzzPackets(f *testing.F) {
	for _, s := range []string{"0000", "0005a", "00010002", "0004", "fff0", "ffff", "0003", "zzzz", "00", "0006a\n0000"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := packets{r: bytes.NewReader(b), left: 1 << 16}
		var back []byte
		for {
			p, err := in.next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, errPkt) {
					t.Fatalf("%v", err)
				}
				break
			}
			if p.data == nil {
				back = append(back, "000"...)
				back = append(back, byte('0'+p.special))
			} else {
				back = appendPkt(back, string(p.data))
			}
		}
		if !strings.EqualFold(string(b[:len(back)]), string(back)) {
			t.Fatalf("%q was read as %q", b, back)
		}
	})
}

func FuzzCommands(f *testing.F) {
	id, other := strings.Repeat("a", 40), strings.Repeat("b", 40)
	line := func(s string) []byte { return appendFlush(appendPkt(nil, s)) }
	for _, s := range [][]byte{
		line(id + " " + other + " refs/heads/x\x00 report-status side-band-64k atomic"),
		line(none + " " + id + " refs/tags/v1\x00report-status object-format=sha1 agent=git/2"),
		line("shallow " + id), line("push-cert\x00report-status"), line(id + " " + other + " refs/heads/x\x00push-options"),
		line(id + " " + other + " refs/heads/../x"), line(id + " " + other + " refs/heads/x\x00object-format=sha256"), []byte("0000"), []byte("00"),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := readRequest(bytes.NewReader(b))
		if err != nil || len(p.commands) == 0 {
			_ = p.report("ok", "code", []string{"words"})
			return
		}
		if len(p.commands) > maxCommands {
			t.Fatalf("%d commands", len(p.commands))
		}
		// What is sent reads as what was judged.
		q, err := readRequest(bytes.NewReader(p.encode()))
		if err != nil {
			t.Fatalf("%v: %q", err, p.encode())
		}
		if len(q.commands) != len(p.commands) || q.atomic != p.atomic {
			t.Fatalf("%+v became %+v", p, q)
		}
		for i := range p.commands {
			if p.commands[i] != q.commands[i] || !refName(p.commands[i].Ref) {
				t.Fatalf("%+v became %+v", p.commands[i], q.commands[i])
			}
		}
	})
}

func FuzzFetchRequest(f *testing.F) {
	for _, s := range []string{"0014command=ls-refs\n0000", "0012command=fetch\n00010009done\n0000", "0032want " + strings.Repeat("a", 40) + "\n00000009done\n", "0017command=bundle-uri\n0000", ""} {
		f.Add([]byte(s), 2)
		f.Add([]byte(s), 0)
	}
	f.Fuzz(func(t *testing.T, b []byte, version int) {
		if fetchCode(b, version) != "" {
			return
		}
		in := packets{r: bytes.NewReader(b), left: maxRequest}
		for {
			p, err := in.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatalf("passed, and %v", err)
			}
			for _, word := range []string{"command=bundle-uri", "bundle-uri", "packfile-uris", "command=object-info"} {
				if bytes.HasPrefix(p.data, []byte(word)) {
					t.Fatalf("passed: %q", p.data)
				}
			}
		}
	})
}

func FuzzAdvertisement(f *testing.F) {
	f.Add([]byte("001e# service=git-upload-pack\n0000000eversion 2\n0015agent=git/2.39.5\n0013ls-refs=unborn\n0026fetch=shallow filter packfile-uris\n0000"))
	f.Add([]byte("001e# service=git-upload-pack\n0000004895dcfa3633004da0049d3d0fa03f80589cbcaf31 refs/heads/maint\x00multi_ack\n0000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		a := &advertised{ReadCloser: io.NopCloser(bytes.NewReader(b)), in: packets{r: bytes.NewReader(b), left: 1 << 20}}
		_, _ = io.Copy(&out, a)
		if bytes.Contains(out.Bytes(), []byte("packfile-uris")) && bytes.Contains(out.Bytes(), []byte("fetch=packfile-uris")) {
			t.Fatalf("offered: %q", out.Bytes())
		}
		_ = writePushRefs(io.Discard, &packets{r: bytes.NewReader(b), left: 1 << 20})
	})
}

func FuzzGraphQL(f *testing.F) {
	for _, s := range []string{
		`{"query":"{repository(owner:\"a\",name:\"b\"){id}}"}`, `{"query":"mutation{x}"}`, `{"query":"query($o:String!){repository(owner:$o,name:\"b\"){id}}","variables":{"o":"a"}}`,
		`{"query":"query{...f} fragment f on Query{...f}"}`, `[]`, `{"query":"{a","variables":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseGraphQL(b)
		if err != nil {
			return
		}
		names, err := q.repositories()
		if err != nil {
			return
		}
		// What is sent is read as what was judged.
		again, err := parseGraphQL(q.body)
		if err != nil {
			t.Fatalf("%v: %s", err, q.body)
		}
		same, err := again.repositories()
		if err != nil || len(same) != len(names) {
			t.Fatalf("%v became %v (%v)", names, same, err)
		}
		for i := range names {
			if names[i] != same[i] {
				t.Fatalf("%v became %v", names, same)
			}
		}
	})
}

func FuzzPackAnswer(f *testing.F) {
	f.Add([]byte("000dpackfile\n0009\x01PACK0000"))
	f.Add([]byte("000dERR no\n0000"))
	f.Add([]byte("000dpackfile\n00040000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		_ = copyPack(&out, &packets{r: bytes.NewReader(b), left: 1 << 20})
		if out.Len() > len(b) {
			t.Fatal("more came out than went in")
		}
	})
}

func FuzzLFSBatch(f *testing.F) {
	oid := strings.Repeat("a", 64)
	for _, s := range []string{
		`{"operation":"download","transfers":["basic","ssh"],"ref":{"name":"refs/heads/main"},"objects":[{"oid":"` + oid + `","size":1}],"hash_algo":"sha256"}`,
		`{"operation":"upload","objects":[{"oid":"` + oid + `","size":0}]}`, `{"operation":"upload","Operation":"download"}`, `{"objects":null}`, `[]`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseLFSBatch(b)
		if err != nil {
			return
		}
		// What is sent is read as what was judged.
		sent, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseLFSBatch(sent)
		if err != nil {
			t.Fatalf("%v: %s", err, sent)
		}
		if diff := cmp.Diff(q, again); diff != "" || len(q.Objects) > maxLFSObjects {
			t.Fatalf("%s became (-read +sent):\n%s", b, diff)
		}
	})
}

func FuzzLFSAnswer(f *testing.F) {
	oid := strings.Repeat("a", 64)
	for _, href := range []string{"https://git.good.test/acme/shop.git/info/lfs/objects/1", "https://store.good.test/1?sig=2", "https://git.good.test/acme/other.git/info/lfs/1", "https://git.good.test/acme/shop.git/info/lfs/../../../other", "http://x", "//y", "https://git.good.test:443@evil.test/"} {
		f.Add([]byte(`{"transfer":"basic","objects":[{"oid":"` + oid + `","size":1,"actions":{"download":{"href":"` + href + `","header":{"Authorization":"x"}}}}]}`))
	}
	f.Add([]byte(`{"objects":[{"oid":"` + oid + `","size":1,"error":{"code":404}}]}`))
	to, err := authority.New(authority.HTTPS, "git.good.test", 443)
	if err != nil {
		f.Fatal(err)
	}
	store, err := authority.ParsePattern("store.good.test")
	if err != nil {
		f.Fatal(err)
	}
	shop := Repository{ID: "1", Name: "acme/shop"}
	h := &host{Host: Host{To: to, Stores: []authority.Pattern{store}}, by: map[string]Repository{"acme/shop": shop, "acme/other": {ID: "2", Name: "acme/other"}}}
	asked := lfsBatch{Operation: "download", Objects: []lfsObject{{oid, 1}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		answer, err := h.parseLFSAnswer(b, asked, shop)
		if err != nil {
			return
		}
		if len(answer) != 1 || answer[0].OID != oid {
			t.Fatalf("%+v", answer)
		}
		act, ok := answer[0].actions["download"]
		if !ok || answer[0].missing || answer[0].refused {
			return
		}
		u, err := url.Parse(string(act.href.Reveal()))
		if err != nil || u.Scheme != "https" || u.User != nil || u.Port() != "" && u.Port() != "443" {
			t.Fatalf("%q is offered", act.href.Reveal())
		}
		switch strings.ToLower(u.Hostname()) {
		case "store.good.test":
		case "git.good.test":
			if p := strings.ToLower(u.EscapedPath()); !strings.HasPrefix(p, "/acme/shop/") && !strings.HasPrefix(p, "/acme/shop.git/") || strings.Contains(p, "..") && strings.Contains(p, "/../") {
				t.Fatalf("%q is offered", act.href.Reveal())
			}
		default:
			t.Fatalf("%q is offered", act.href.Reveal())
		}
	})
}

func FuzzForgePlace(f *testing.F) {
	for _, s := range []string{"/api/v4/projects/1/issues", "/api/v4/projects/acme%2Fshop/repository/files/a%2Fb/raw", "/api/v4/projects/2", "/api/v4/projects/acme%2Fother%2F", "/api/v4/projects/1%2F..%2F2/issues", "/api/v4/user"} {
		f.Add(s, "")
		f.Add(s, "id=1&page=2")
		f.Add(s, "from_project_id=2;sudo=root")
	}
	shop, other := Repository{ID: "1", Name: "acme/shop"}, Repository{ID: "2", Name: "acme/other"}
	h := &host{Host: Host{Provider: GitLab, APIPath: "/api/v4"}, by: map[string]Repository{"acme/shop": shop, "acme/other": other}, ids: map[string]Repository{"1": shop, "2": other}}
	f.Fuzz(func(t *testing.T, path, query string) {
		at := h.apiPlace("GET", path, query)
		if at.code != "" {
			return
		}
		if !strings.HasPrefix(at.path, "/api/v4/projects/"+at.repository.ID+"/") {
			t.Fatalf("%s is sent as %s", path, at.path)
		}
		q, err := url.ParseQuery(at.query)
		if err != nil {
			return // what cannot be read is no key of anybody's
		}
		for key := range q {
			if key == "sudo" || key == "id" || strings.Contains(key, "project") {
				t.Fatalf("%q is sent as %q", query, at.query)
			}
		}
	})
}
