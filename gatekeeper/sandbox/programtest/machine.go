//go:build linux

package programtest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait; nothing that works comes near it.
const patience = 2 * time.Minute

// Names of the files that a Machine writes, in the folder that it is given.
const (
	CA    = "ca.pem"
	Token = "remote.token"
	state = "machine" // its --dir
)

// Machine is gatehouse-remote as operators run it: the built program, with a
// certificate, a token and a folder of its own.
type Machine struct {
	T    testing.TB // the test, or the subtest, that uses it now
	Addr string     // where it listens
	Cmd  *exec.Cmd  // nil while it does not run

	dir     string
	program string
	listen  string
	exited  chan struct{}
}

// NewMachine builds and starts one in dir, which the users of sessions have to be
// able to pass through. Its certificate is for host and its own authority; listen
// may leave the port open.
func NewMachine(t testing.TB, dir, host, token, listen string) *Machine {
	t.Helper()
	m := &Machine{T: t, dir: dir, listen: listen, program: Build(t, dir, "gatehouse-remote")}
	selfSigned(t, host, m.at(CA), m.at("machine.key"))
	if err := os.WriteFile(m.at(Token), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
	m.Start()
	return m
}

func (m *Machine) at(name string) string { return filepath.Join(m.dir, name) }

// Start runs the program until it says where it listens. A machine that lacks
// what sandboxes need skips the test.
func (m *Machine) Start() {
	m.T.Helper()
	cmd := exec.Command(m.program, "--listen", m.listen, "--cert", m.at(CA), "--key", m.at("machine.key"), "--token-file", m.at(Token), "--dir", m.at(state))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.T.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	exited := make(chan struct{})
	m.Cmd, m.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	var said bool
	if m.Addr, said = strings.CutPrefix(strings.TrimSpace(line), "gatehouse-remote listens on "); said {
		return
	}
	m.Kill()
	if strings.Contains(errs.String(), "hint: ") {
		m.T.Skipf("NOT TESTED on this machine: %s", errs.String())
	}
	m.T.Fatalf("it said %q\n%s", line, errs.String())
}

// Kill is kill -9, and returns when the process is gone.
func (m *Machine) Kill() {
	if m.Cmd != nil {
		_ = m.Cmd.Process.Kill()
		<-m.exited
		m.Cmd = nil
	}
}

// Stop is an orderly end.
func (m *Machine) Stop() {
	m.T.Helper()
	_ = m.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.exited:
	case <-time.After(patience):
		m.T.Fatal("the machine does not stop")
	}
	if !m.Cmd.ProcessState.Success() {
		m.T.Errorf("it ended with %v", m.Cmd.ProcessState)
	}
	m.Cmd = nil
}

// Empty checks that the machine keeps nothing of a session. Canaries are those of
// the run itself: one while it lasts.
func (m *Machine) Empty(canaries int) {
	m.T.Helper()
	for pattern, want := range map[string]int{"doors/*": 0, "run/s-*": 0, "artifacts/*": 0, "transcripts/*": 0, "gatehouse-remote-canary-*": canaries} {
		if left, err := filepath.Glob(filepath.Join(m.at(state), pattern)); err != nil || len(left) != want {
			m.T.Errorf("left on the machine: %v %v", left, err)
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
