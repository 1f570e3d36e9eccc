package leak

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/bits"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Shortest is how long a secret must be to be told from chance.
const Shortest = 12

// window is what the search compares first; every form is at least as long.
const window = 8

// Set is secrets by name. Its zero value is empty and ready; it may be used by
// many tests at once.
type Set struct {
	mu      sync.RWMutex
	values  map[string]*one   // by value
	forms   map[uint64][]form // by their first window
	hashes  [1 << 16]bool     // of first windows
	longest int               // of all forms
	zeros   int               // with which a form begins, at most
	short   map[string]string // what could not be taken, name -> value
}

// one is a secret, under every name that it was given.
type one struct{ names []string }

type form struct {
	bytes []byte
	how   string
	of    *one
}

// New returns a unique secret that begins with prefix and is known from now on.
func (s *Set) New(name, prefix string) string {
	v := prefix + rand.Text()
	s.Add(name, []byte(v))
	return v
}

// Add makes a secret known, with what it is made of: the numbers of a private
// key, the values of a key file in JSON, the two halves of a user and password,
// the bytes behind base64. It reports whether the secret is long enough.
func (s *Set) Add(name string, value []byte) bool {
	value = bytes.TrimRight(value, "\r\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(value) < Shortest {
		if s.short == nil {
			s.short = map[string]string{}
		}
		s.short[name] = string(value)
		return false
	}
	s.add(name, value)
	for _, part := range parts(value) {
		if len(part) >= Shortest {
			s.add(name, part)
		}
	}
	return true
}

func (s *Set) add(name string, value []byte) {
	if known := s.values[string(value)]; known != nil {
		if !slices.Contains(known.names, name) {
			known.names = append(known.names, name)
		}
		return
	}
	if s.values == nil {
		s.values, s.forms = map[string]*one{}, map[uint64][]form{}
	}
	o := &one{names: []string{name}}
	s.values[string(value)] = o
	for how, b := range Forms(value) {
		first := binary.LittleEndian.Uint64(b)
		if slices.ContainsFunc(s.forms[first], func(f form) bool { return f.of == o && bytes.Equal(f.bytes, b) }) {
			continue // two ways to write it are one
		}
		s.forms[first] = append(s.forms[first], form{bytes: b, how: how, of: o})
		s.hashes[hash(first)] = true
		s.longest = max(s.longest, len(b))
		s.zeros = max(s.zeros, bits.TrailingZeros64(first)/8)
	}
}

// Len returns how many secrets are known, and those that were too short.
func (s *Set) Len() (known int, short map[string]string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	short = map[string]string{}
	for name, value := range s.short {
		short[name] = value
	}
	return len(s.values), short
}

func hash(first uint64) uint16 { return uint16(first * 0x9e3779b97f4a7c15 >> 48) }

// Forms returns the ways in which a secret could show, by what they are called.
func Forms(value []byte) map[string][]byte {
	f := map[string][]byte{
		"plain": value, "hex": []byte(hex.EncodeToString(value)), "HEX": []byte(strings.ToUpper(hex.EncodeToString(value))),
		"query": []byte(url.QueryEscape(string(value))), "path": []byte(url.PathEscape(string(value))),
	}
	if text, err := json.Marshal(string(value)); err == nil {
		f["json"] = text[1 : len(text)-1]
	}
	for shift := range 3 {
		// Without the characters that hold bits of the neighbours.
		padded := append(make([]byte, shift), value...)
		from, to := (shift*8+5)/6, len(padded)*8/6
		f["base64+"+string(rune('0'+shift))] = []byte(base64.RawStdEncoding.EncodeToString(padded)[from:to])
		f["base64url+"+string(rune('0'+shift))] = []byte(base64.RawURLEncoding.EncodeToString(padded)[from:to])
	}
	return f
}

// parts returns what of a secret is one by itself.
func parts(value []byte) (all [][]byte) {
	text := string(value)
	if block, _ := pem.Decode(value); block != nil {
		return append(all, keyParts(block)...)
	}
	var file map[string]any
	if json.Unmarshal(value, &file) == nil {
		for _, name := range []string{"private_key", "refresh_token", "client_secret", "private_key_id"} {
			if v, ok := file[name].(string); ok {
				all = append(append(all, []byte(v)), parts([]byte(v))...)
			}
		}
		return all
	}
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		if u.User != nil {
			all = append(all, []byte(u.User.Username()))
		}
		return all
	}
	if user, password, ok := strings.Cut(text, ":"); ok {
		all = append(all, []byte(user), []byte(password))
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_")); err == nil {
		all = append(all, raw)
	}
	return all
}

// keyParts returns the private numbers of a key, and those lines of its file in
// which nothing stands that its public key tells.
func keyParts(block *pem.Block) (all [][]byte) {
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		if key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
			if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
				return nil
			}
		}
	}
	lines := bytes.Split(bytes.TrimSpace(pem.EncodeToMemory(block)), []byte("\n"))
	lines = lines[1 : len(lines)-1]
	switch key := key.(type) {
	case *rsa.PrivateKey:
		all = append(all, key.D.Bytes()[:24])
		for _, p := range key.Primes {
			all = append(all, p.Bytes()[:24])
		}
		public := min(len(lines), (len(key.N.Bytes())+64)/48+1) // 48 bytes a line, after some 40 of frame
		lines = lines[public:]
	case ed25519.PrivateKey:
		all = append(all, key.Seed())
	case *ecdsa.PrivateKey:
		if raw, err := key.Bytes(); err == nil {
			all = append(all, raw)
		}
		lines = lines[:1] // the next ones hold the public point
	}
	return append(all, lines...)
}
