package secretstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/internal/secretstore"
	"gatehouse/internal/secretstore/storetest"
)

func identity(t testing.TB) secret.Value {
	t.Helper()
	id, err := secretstore.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func open(t testing.TB, path string, id secret.Value) *secretstore.File {
	t.Helper()
	f, err := secretstore.Open(path, id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFile(t *testing.T) {
	path, id := filepath.Join(t.TempDir(), "secrets.age"), identity(t)
	storetest.Run(t, func(t *testing.T) secretstore.Store { return open(t, path, id) })
}

// TestFileAtRest is M-03 on the disk: neither the file nor its folder ever holds
// the value or its name.
func TestFileAtRest(t *testing.T) {
	dir, id := t.TempDir(), identity(t)
	path := filepath.Join(dir, "secrets.age")
	f := open(t, path, id)
	for _, v := range []string{"canary-first-4711", "canary-second-4711"} {
		if err := f.Set(t.Context(), "the-name", secret.FromString(v)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"canary-", "4711", "the-name"} {
			if bytes.Contains(b, []byte(s)) {
				t.Errorf("%s holds %q", e.Name(), s)
			}
		}
		if e.Name() != "secrets.age" && e.Name() != "secrets.age.lock" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestFileRefuses(t *testing.T) {
	id := identity(t)
	cases := map[string]func(t *testing.T, path string) secret.Value{
		"another_identity": func(t *testing.T, path string) secret.Value { return identity(t) },
		"no_identity":      func(t *testing.T, path string) secret.Value { return secret.FromString("AGE-SECRET-KEY-1CANARY") },
		"open_to_others": func(t *testing.T, path string) secret.Value {
			return check(t, os.Chmod(path, 0o640), id)
		},
		"cut_short": func(t *testing.T, path string) secret.Value {
			b, err := os.ReadFile(path)
			return check(t, errors.Join(err, os.WriteFile(path, b[:len(b)-1], 0o600)), id)
		},
		"flipped_bit": func(t *testing.T, path string) secret.Value {
			b, err := os.ReadFile(path)
			b[len(b)-1] ^= 1
			return check(t, errors.Join(err, os.WriteFile(path, b, 0o600)), id)
		},
		"not_age": func(t *testing.T, path string) secret.Value {
			return check(t, os.WriteFile(path, []byte(`{"format":1}`), 0o600), id)
		},
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secrets.age")
			if err := open(t, path, id).Set(t.Context(), "a", secret.FromString("canary-4711")); err != nil {
				t.Fatal(err)
			}
			with := spoil(t, path)
			_, err := secretstore.Open(path, with)
			if problem.CodeOf(err) != problem.ConfigInvalid {
				t.Fatalf("got %v", err)
			}
			if s := strings.ToLower(err.Error()); strings.Contains(s, "canary") {
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}

func check(t *testing.T, err error, id secret.Value) secret.Value {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// FuzzOpen feeds hostile files: whatever is not the store is an error, never a
// store that looks empty.
func FuzzOpen(f *testing.F) {
	id := identity(f)
	path := filepath.Join(f.TempDir(), "seed.age")
	if err := open(f, path, id).Set(f.Context(), "a", secret.FromString("value")); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add([]byte("age-encryption.org/v1\n-> X25519 AAAA\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "s.age")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := secretstore.Open(path, id); err == nil && !bytes.Equal(b, good) {
			t.Errorf("opened %q", b)
		}
	})
}
