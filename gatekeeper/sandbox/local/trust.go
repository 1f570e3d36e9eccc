//go:build linux

package local

import (
	"crypto/sha1" //nolint:gosec // the JKS format demands it; nothing relies on it
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// bundlePath is the one bundle inside: the root file system's own authorities,
// which passthrough rules need, and the session's.
const bundlePath = "/etc/ssl/certs/ca-certificates.crt"

// sessionPath is the session's authority alone.
const sessionPath = "/etc/gatehouse/session-ca.pem"

// trustVariables name the authorities to clients that do not find them by
// themselves. Node adds to its own list; the others replace theirs.
var trustVariables = map[string]string{
	"SSL_CERT_FILE":       bundlePath,
	"CURL_CA_BUNDLE":      bundlePath,
	"REQUESTS_CA_BUNDLE":  bundlePath,
	"GIT_SSL_CAINFO":      bundlePath,
	"PIP_CERT":            bundlePath,
	"CARGO_HTTP_CAINFO":   bundlePath,
	"NODE_EXTRA_CA_CERTS": sessionPath,
}

// bundlePaths are where systems keep their bundle, relative to /etc. The first
// that exists is read; all are provided, as links to the first.
var bundlePaths = []string{
	"ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch
	"pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
	"pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"ssl/ca-bundle.pem",                            // SUSE
	"ssl/cert.pem",                                 // Alpine, and OpenSSL's default
	"ca-certificates/extracted/tls-ca-bundle.pem",  // Arch
	"pki/tls/cert.pem",                             // RHEL's OpenSSL default
}

// javaPaths are where distributions keep the trust store of all their JVMs.
var javaPaths = []string{"ssl/certs/java/cacerts", "pki/ca-trust/extracted/java/cacerts"}

// makeTrust writes the bundle at every usual path, and the Java trust store.
func makeTrust(etc, rootfs string, trust []byte) error {
	var bundle []byte
	for _, p := range bundlePaths {
		f, err := openIn(rootfs, "etc/"+p, os.O_RDONLY)
		if absent(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		b, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		bundle = append(b, '\n')
		break
	}
	bundle = append(bundle, trust...)
	files := map[string][]byte{
		strings.TrimPrefix(bundlePath, "/etc/"):  bundle,
		strings.TrimPrefix(sessionPath, "/etc/"): trust,
	}
	store := javaStore(bundle)
	for _, p := range javaPaths {
		files[p] = store
	}
	for p, content := range files {
		at := filepath.Join(etc, p)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		if err := os.WriteFile(at, content, 0o644); err != nil {
			return fmt.Errorf("trust: %w", err)
		}
	}
	for _, p := range bundlePaths[1:] {
		at := filepath.Join(etc, p)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		if err := os.Symlink(bundlePath, at); err != nil {
			return fmt.Errorf("trust: %w", err)
		}
	}
	return nil
}

// javaHomes returns the trust stores that JVMs of the root file system carry
// themselves, as paths inside; the others link to javaPaths.
func javaHomes(rootfs string) []string {
	root := ""
	if rootfs != "host" {
		root = rootfs
	}
	var found []string
	for _, pattern := range []string{"/usr/lib/jvm/*/lib/security/cacerts", "/usr/lib/jvm/*/jre/lib/security/cacerts"} {
		paths, _ := filepath.Glob(root + pattern) // the pattern is well formed
		for _, p := range paths {
			if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
				found = append(found, strings.TrimPrefix(p, root))
			}
		}
	}
	return found
}

// javaStore writes the certificates of a PEM bundle as a Java key store (JKS
// version 2) with the password every JVM expects. JVMs from 8 on read it at the
// place of their own cacerts without any option.
func javaStore(bundle []byte) []byte {
	const (
		magic    = 0xfeedfeed
		version  = 2
		trusted  = 2 // entry tag
		password = "changeit"
		salt     = "Mighty Aphrodite" // part of the format
	)
	var ders [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			ders = append(ders, block.Bytes)
		}
	}
	var b []byte
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ders)))
	for i, der := range ders {
		b = binary.BigEndian.AppendUint32(b, trusted)
		text(fmt.Sprintf("ca-%04d", i))
		b = binary.BigEndian.AppendUint64(b, 0) // creation time: none
		text("X.509")
		b = binary.BigEndian.AppendUint32(b, uint32(len(der)))
		b = append(b, der...)
	}
	h := sha1.New() //nolint:gosec // see above
	for _, c := range []byte(password) {
		h.Write([]byte{0, c}) // UTF-16, big endian
	}
	h.Write([]byte(salt))
	h.Write(b)
	return h.Sum(b)
}
