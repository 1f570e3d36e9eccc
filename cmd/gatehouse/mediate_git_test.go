package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"path/filepath"
	"testing"

	"gatehouse/internal/config"
)

// TestStaticHosts is M-11 in the wiring: a GitHub connection with one credential
// of its own is known as such, and one with an App is not.
func TestStaticHosts(t *testing.T) {
	dir := tempDir(t)
	if _, err := initNode(dir, "test.gatehouse.example/node-1"); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "app.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	write(t, filepath.Join(dir, "pat"), unique("pat", "github_pat_canary"))
	holds(filepath.Join(dir, "pat"), "pat")
	for name, c := range map[string]struct {
		credential string
		static     bool
	}{
		"M-11_credential": {`credential: "${file:pat}"`, true},
		"app":             {`app: {id: 4711, key: "${file:app.pem}"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, filepath.Join(dir, "gatehouse.yaml"), `listen: {hooks: "127.0.0.1:0", operator: "127.0.0.1:0", private: "127.0.0.1:0"}
endpoints: [{name: main, source: github, secrets: ["${file:main.key}"]}]
repositories: [{id: "186853002", name: acct-01/Hello-World}]
connections: [{name: hub, kind: scm, provider: github, `+c.credential+`}]
sandbox: {unlimited: accepted}
`)
			cfg, err := config.Load(filepath.Join(dir, "gatehouse.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			up, err := newUpstream(cfg, nil, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			defer up.Close()
			m, err := newGits(parts{cfg: cfg, state: state{dir: tempDir(t)}, up: up, inject: injectors{}, log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if len(m.hosts) != 1 || m.hosts[0].Static != c.static {
				t.Errorf("hosts are %+v", m.hosts)
			}
		})
	}
}
