package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
)

// remoteHost is the name of the other machine, and remoteAddress where the fake
// outside has it.
const (
	remoteHost    = "sandboxes.good.test"
	remoteAddress = "93.184.216.50"
)

// otherMachine is gatehouse-remote as operators run it: the built program, with
// a certificate, a token and a folder of its own.
type otherMachine struct {
	t       testing.TB
	dir     string // --dir
	program string
	listen  string
	args    []string

	cmd    *exec.Cmd
	exited chan struct{}
}

// newOtherMachine starts the program and writes ca.pem and remote.token, which
// its config names, into the node's folder.
func newOtherMachine(t testing.TB, dir string, world *outside.World) *otherMachine {
	t.Helper()
	m := &otherMachine{t: t, dir: filepath.Join(dir, "machine"), program: filepath.Join(dir, "gatehouse-remote")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", m.program, "gatehouse/cmd/gatehouse-remote")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	if m.listen, err = freeAddr(); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	selfSigned(t, remoteHost, at("ca.pem"), at("machine.key"))
	if err := os.WriteFile(at("remote.token"), []byte(unique("remote", "remote-token-")), 0o600); err != nil {
		t.Fatal(err)
	}
	m.args = []string{"--listen", m.listen, "--cert", at("ca.pem"), "--key", at("machine.key"), "--token-file", at("remote.token"), "--dir", m.dir}
	world.DNS.Answer(remoteHost, netip.MustParseAddr(remoteAddress))
	t.Cleanup(m.kill)
	m.start()
	return m
}

// config sends a node to the machine, and its shims to the node.
func (m *otherMachine) config(world *outside.World) string {
	m.t.Helper()
	doors, err := freeAddr()
	if err != nil {
		m.t.Fatal(err)
	}
	dev := strings.Replace(worldConfig(world), "upstreams: {", fmt.Sprintf("upstreams: {%q: %q, ", remoteAddress+":443", m.listen), 1)
	return strings.TrimSuffix(dev, "}\n") + ", ca: ca.pem}\n" + fmt.Sprintf("providers: {local: {}, remote: {url: \"https://%s\", ca: ca.pem, token: \"${file:remote.token}\", doors: %q}}\n", remoteHost, doors)
}

// start runs the program until it listens.
func (m *otherMachine) start() {
	m.t.Helper()
	m.cmd = exec.Command(m.program, m.args...)
	m.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var errs strings.Builder
	m.cmd.Stderr = &errs
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd, exited := m.cmd, make(chan struct{})
	m.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	if line != "gatehouse-remote listens on "+m.listen+"\n" {
		m.kill()
		if said := errs.String(); strings.Contains(said, string(problem.ProviderCapabilityMissing)) || strings.Contains(said, "bubblewrap") {
			m.t.Skipf("NOT TESTED on this machine: %s", said)
		}
		m.t.Fatalf("it said %q\n%s", line, errs.String())
	}
}

// kill is kill -9, and returns when the process is gone.
func (m *otherMachine) kill() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	<-m.exited
	m.cmd = nil
}

// stop is an orderly end, after which nothing is left but the folder's frame.
func (m *otherMachine) stop() {
	m.t.Helper()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.exited:
	case <-time.After(patience):
		m.t.Fatal("the other machine does not stop")
	}
	if !m.cmd.ProcessState.Success() {
		m.t.Errorf("it ended with %v", m.cmd.ProcessState)
	}
	m.cmd = nil
	m.empty()
}

// empty checks that nothing of a session is on the machine.
func (m *otherMachine) empty() {
	m.t.Helper()
	for _, pattern := range []string{"doors/*", "run/s-*", "artifacts/*", "transcripts/*"} {
		if left, err := filepath.Glob(filepath.Join(m.dir, pattern)); err != nil || len(left) != 0 {
			m.t.Errorf("left on the other machine: %v %v", left, err)
		}
	}
}

// selfSigned writes a certificate for host that is its own authority, and its
// key.
func selfSigned(t testing.TB, host, certificate, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, private: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
