//go:build linux

package local_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// authority makes a session's authority and a leaf for shop.example.
func authority(t *testing.T) (trust []byte, leaf tls.Certificate) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Gatehouse session s-1"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "shop.example"}, DNSNames: []string{"shop.example"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// shop is a door behind which https://shop.example/ answers "it works".
func shop(t *testing.T, leaf tls.Certificate) *fakeDoor {
	return openDoor(t, func(target string, c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		switch target {
		case "gatehouse-dns:53":
			answerDNS(c)
		case "192.0.2.99:443", "shop.example:443":
			tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{leaf}, NextProtos: []string{"http/1.1"}})
			r, err := http.ReadRequest(bufio.NewReader(tc))
			if err != nil {
				return
			}
			body := "it works\n"
			if strings.HasSuffix(r.URL.Path, "/info/refs") {
				body = "001e# service=git-upload-pack\n0000003da123456789012345678901234567890123456789 refs/heads/main\n0000"
			}
			_, _ = io.WriteString(tc, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n"+body)
			_ = tc.Close()
		}
	})
}

const javaClient = `
import java.net.*; import java.io.*;
public class Get { public static void main(String[] a) throws Exception {
  System.out.print(new String(new URL("https://shop.example/x").openStream().readAllBytes())); } }
`

// TestRealClientsTrustTheSession: unmodified clients reach the session's
// authority, by the transparent path and through the proxy variables.
func TestRealClientsTrustTheSession(t *testing.T) {
	cases := map[string]struct{ needs, script, want string }{
		"curl":                     {"curl", "curl -sS https://shop.example/x", "it works"},
		"curl_by_bundle":           {"curl", "env -i curl -sS https://shop.example/x", "it works"},
		"git":                      {"git", "git ls-remote https://shop.example/acme/shop", "a123456789012345678901234567890123456789\trefs/heads/main"},
		"python_urllib":            {"/usr/bin/python3", `/usr/bin/python3 -c 'import urllib.request; print(urllib.request.urlopen("https://shop.example/x").read().decode())'`, "it works"},
		"node_https":               {"/usr/bin/node", `/usr/bin/node -e 'require("https").get("https://shop.example/x", r => r.pipe(process.stdout))'`, "it works"},
		"node_fetch":               {"/usr/bin/node", `/usr/bin/node -e 'fetch("https://shop.example/x").then(r => r.text()).then(console.log)'`, "it works"},
		"openssl":                  {"openssl", `echo | openssl s_client -connect 192.0.2.99:443 -servername shop.example -verify_return_error 2>&1 | grep "Verify return code"`, "0 (ok)"},
		"curl_by_session_ca_alone": {"curl", `curl -sS --cacert /etc/gatehouse/session-ca.pem https://shop.example/x`, "it works"},
		"java":                     {"/usr/bin/javac", `cat > Get.java <<'J'` + javaClient + "J\n/usr/bin/java Get.java", "it works"},
		"stranger_is_not_found":    {"curl", `curl -sS --cacert /etc/passwd https://shop.example/x; echo $?`, "77"},
	}
	trust, leaf := authority(t)
	for _, proxy := range []bool{false, true} {
		for name, c := range cases {
			if proxy {
				name += "_by_proxy"
			}
			t.Run(name, func(t *testing.T) {
				if _, err := exec.LookPath(c.needs); err != nil {
					t.Skipf("NOT TESTED on this machine: no %s", c.needs)
				}
				if testing.Short() && strings.HasPrefix(name, "java") {
					t.Skip("slow")
				}
				r := run(t, sandbox.Spec{Trust: trust, Proxy: proxy, Timeout: 2 * time.Minute}, shop(t, leaf), c.script)
				if !strings.Contains(r.out, c.want) {
					t.Errorf("inside (exit %d %s):\n%s", r.Exit, r.Reason, r.out)
				}
			})
		}
	}
}
