package leak_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"gatehouse/internal/leak"
)

// TestForms: every way in which a secret can be written is found, wherever it
// begins and however the bytes around it are.
func TestForms(t *testing.T) {
	var s leak.Set
	v := s.New("one", "can<ary/+")
	s.New("another", "canary-")
	quoted, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{
		"plain": v, "hex": hex.EncodeToString([]byte(v)), "upper": strings.ToUpper(hex.EncodeToString([]byte(v))),
		"query": url.QueryEscape(v), "path": url.PathEscape(v), "json": string(quoted),
	}
	for before := range 4 {
		around := strings.Repeat("x", before) + v + "and more"
		forms[fmt.Sprint("base64_", before)] = base64.StdEncoding.EncodeToString([]byte(around))
		forms[fmt.Sprint("base64url_", before)] = base64.RawURLEncoding.EncodeToString([]byte(around))
	}
	for how, text := range forms {
		t.Run(how, func(t *testing.T) {
			for _, at := range []int{0, 7, 1<<18 - 9, 1<<18 - 1, 1 << 18, 3<<18 + 5} {
				b := append(bytes.Repeat([]byte("."), at), text+"...."...)
				hits, n, err := s.Read("there", iotest.OneByteReader(bytes.NewReader(b)))
				if at > 1000 { // one by one takes long
					hits, n, err = s.Read("there", bytes.NewReader(b))
				}
				if err != nil || n != int64(len(b)) || len(hits) != 1 || hits[0].Names[0] != "one" || hits[0].Offset < int64(at) || hits[0].Offset > int64(at+8) {
					t.Errorf("at %d: %v after %d bytes, %v", at, hits, n, err)
				}
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		for _, b := range []string{"", v[:len(v)-1], strings.ToLower(v), strings.Repeat("\x00", 1<<19)} {
			if hits := s.In("there", []byte(b)); len(hits) != 0 {
				t.Errorf("%v in %q", hits, b)
			}
		}
	})
	if s.Add("short", []byte("elevenbytes")) {
		t.Error("a secret that cannot be told from chance was taken")
	}
}

// TestParts: what a secret is made of is found without the rest of it, and what
// is public of it is not a secret.
func TestParts(t *testing.T) {
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	file := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	line := func(key any, n int) string { return strings.Split(string(file(key)), "\n")[n] }
	account, _ := json.Marshal(map[string]string{"type": "service_account", "private_key": string(file(rsaKey)), "client_email": "someone@example.com"})
	raw := bytes.Repeat([]byte{1, 2, 3}, 8)
	number, err := ecKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ value, part string }{
		"ed25519_seed": {string(file(edKey)), string(edKey.Seed())}, "ed25519_line": {string(file(edKey)), line(edKey, 1)},
		"ecdsa_number": {string(file(ecKey)), string(number)}, "ecdsa_line": {string(file(ecKey)), line(ecKey, 1)},
		"rsa_exponent": {string(file(rsaKey)), string(rsaKey.D.Bytes())}, "rsa_prime": {string(file(rsaKey)), string(rsaKey.Primes[1].Bytes())}, "rsa_line": {string(file(rsaKey)), line(rsaKey, 12)},
		"service_account": {string(account), line(rsaKey, 12)},
		"user_password":   {"somebody:a-password-of-it", "a-password-of-it"}, "url_user": {"https://0123456789abcdef@errors.example.com/42", "0123456789abcdef"},
		"base64": {base64.StdEncoding.EncodeToString(raw), string(raw)}, "webhook": {"whsec_" + base64.StdEncoding.EncodeToString(raw), string(raw)},
	} {
		t.Run(name, func(t *testing.T) {
			var s leak.Set
			if !s.Add(name, []byte(c.value)) {
				t.Fatal("not taken")
			}
			if hits := s.In("there", []byte("..."+c.part+"...")); len(hits) == 0 {
				t.Error("not found")
			}
		})
	}
	var s leak.Set
	s.Add("rsa", file(rsaKey))
	s.Add("ed25519", file(edKey))
	s.Add("ecdsa", file(ecKey))
	s.Add("account", account)
	for _, public := range []any{&rsaKey.PublicKey, edKey.Public(), &ecKey.PublicKey} {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		if hits := s.In("the public key", append(der, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)); len(hits) != 0 {
			t.Error(hits)
		}
	}
	if hits := s.In("an address", []byte("someone@example.com")); len(hits) != 0 {
		t.Error(hits)
	}
}

// TestTree: a file may hold the one secret that it is named for, and nothing else
// may.
func TestTree(t *testing.T) {
	var s leak.Set
	own, other := s.New("own", "own-"), s.New("other", "other-")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, "a log\n", other)
	z.Close()
	for name, c := range map[string]struct {
		path, content string
		hits          int
	}{
		"own_in_its_file":    {"keys/own.key", own + "\n", 0},
		"other_in_that_file": {"keys/own.key", own + "\n" + other, 1},
		"own_beside_it":      {"keys/own.key.old", own, 1},
		"own_under_its_name": {"else/own.key", own, 1},
		"log":                {"log", "level=INFO msg=" + other, 1},
		"compressed":         {"log.gz", zipped.String(), 1},
		"cut_off":            {"log.gz", zipped.String()[:zipped.Len()-8], 1},
		"none":               {"log", "nothing to tell", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, c.path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			holders := leak.Holders{}
			holders.Add(filepath.Join(dir, "keys/own.key"), "own")
			found, err := s.Tree(dir, holders)
			if err != nil || len(found.Hits) != c.hits || found.Files != 1 || found.Bytes != int64(len(c.content)) {
				t.Errorf("%+v %v", found, err)
			}
		})
	}
}

// TestHoles: what stands behind a hole of a file is found where it is, and holes
// are not read.
func TestHoles(t *testing.T) {
	var s leak.Set
	v := s.New("one", "one-")
	path := filepath.Join(t.TempDir(), "journal")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const at = 64<<20 + 4001
	_, err1 := f.WriteAt([]byte(v), at)
	if err := errors.Join(err1, f.Truncate(200<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	found, err := s.Tree(filepath.Dir(path), nil)
	if err != nil || len(found.Hits) != 1 || found.Hits[0].Offset != at {
		t.Errorf("%+v %v", found, err)
	}
	t.Logf("%d bytes were read", found.Bytes)
}

func BenchmarkSearch(b *testing.B) {
	var s leak.Set
	for i := range 500 {
		s.New(fmt.Sprint(i), "canary-")
	}
	text := make([]byte, 64<<20)
	_, _ = rand.Read(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if hits := s.In("noise", text); len(hits) != 0 {
			b.Fatal(hits)
		}
	}
}
