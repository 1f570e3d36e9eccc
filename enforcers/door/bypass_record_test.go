package door_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/enforcers"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// recordRows are the rows of the matrix that are about what is beside the door
// and about its record. They run in both modes: none is opened by shadow.
var recordRows = map[string]func(*testing.T, *outside, receipts.Mode){
	"EG-96_direct_egress":   directEgress,
	"EG-102_receipt_tamper": receiptTamper,
	"EG-103_shadow_claims":  shadowClaims,
}

const insideSocket = "GATEHOUSE_TEST_DOOR" // the door's socket, for the test that runs inside

// directEgress starts this test program again in a network namespace of its own,
// as a sandbox has one, with the door's socket as the only thing that leads out.
// That a real sandbox is such a place is what its own probe proves.
func directEgress(t *testing.T, o *outside, mode receipts.Mode) {
	in := open(t, o, setup{mode: mode})
	from := in.mark()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInsideNamespace$", "-test.v")
	cmd.Env = append(os.Environ(), insideSocket+"="+in.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		expected.Store(caseOf(t), true)
		t.Skipf("SKIPPED: this machine gives no user namespace: %v", err)
	}
	if err != nil {
		t.Fatalf("inside: %v\n%s", err, out)
	}
	in.end()
	// What the door was asked, and nothing beside it.
	in.expect(t, from, reply{status: http.StatusOK}, allowed(http.StatusOK, "egress[5]"))
	if n := o.tally().requests - from.requests; n != 1 || t.Failed() {
		t.Errorf("the fakes saw %d requests, want the door's one: %s", n, out)
	}
}

// TestInsideNamespace is what directEgress runs. It tries every way out that is
// not the door, and then the door.
func TestInsideNamespace(t *testing.T) {
	socket := os.Getenv(insideSocket)
	if socket == "" {
		t.Skip("runs inside a network namespace, for EG-96")
	}
	dial := func(network, address string) func() error {
		return func() error {
			c, err := net.DialTimeout(network, address, 5*time.Second)
			if err == nil {
				_, err = c.Write([]byte("x"))
				_ = c.Close()
			}
			return err
		}
	}
	raw := func(family, typ, proto int, to unix.Sockaddr) func() error {
		return func() error {
			fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, proto)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, make([]byte, 64), 0, to)
		}
	}
	public := [4]byte{93, 184, 216, 10}
	for name, try := range map[string]func() error{
		"tcp4":   dial("tcp4", "93.184.216.10:443"),
		"tcp6":   dial("tcp6", "[2606:2800:220:1::10]:443"),
		"udp":    dial("udp4", "93.184.216.10:443"),
		"udp6":   dial("udp6", "[2606:2800:220:1::10]:443"),
		"dns":    dial("udp4", "8.8.8.8:53"),
		"lo":     dial("tcp4", "127.0.0.1:443"),
		"icmp":   raw(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: public}),
		"icmp6":  raw(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, &unix.SockaddrInet6{Addr: [16]byte{0x26, 0x06}}),
		"ip":     raw(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, &unix.SockaddrInet4{Addr: public}),
		"sctp":   raw(unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP, &unix.SockaddrInet4{Addr: public, Port: 443}),
		"packet": raw(unix.AF_PACKET, unix.SOCK_RAW, 0, &unix.SockaddrLinklayer{Ifindex: 1, Halen: 6}),
		// AF_VSOCK is not held by a network namespace: the sandbox's filter refuses it.
	} {
		if err := try(); err == nil {
			t.Errorf("%s went out", name)
		}
	}
	b, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	counters := regexp.MustCompile(`(?m)^\s*(\S+):((?:\s+\d+)+)$`).FindAllStringSubmatch(string(b), -1)
	if len(counters) == 0 {
		t.Fatalf("no interface is counted:\n%s", b)
	}
	for _, c := range counters {
		if sent := strings.Fields(c[2])[9]; sent != "0" {
			t.Errorf("%s packets left by %s", sent, c[1])
		}
	}
	// The way that there is.
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET http://plain.good.test/ HTTP/1.1\r\nHost: plain.good.test\r\n\r\n")
	if re := read(bufio.NewReader(c), "GET"); re.status != http.StatusOK {
		t.Errorf("the door answered %d %v %s", re.status, re.err, re.body)
	}
}

// recorded runs do in a session whose receipts are real, and returns its export
// and the root to check it against.
func recorded(t *testing.T, o *outside, mode receipts.Mode, session string, do func(in *inside)) (export []byte, root string) {
	t.Helper()
	keys, err := notary.NewKeys("gatehouse.example/matrix")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "matrix", Keys: keys})
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	chain, err := n.Open(t.Context(), session, receipts.Open{
		State: "admitted", Bundle: "matrix", Mode: mode, Policy: "credential_free",
		Points: []string{"gatekeeper", "door"}, NotSeen: []string{"processes and files inside the sandbox", "protocols other than TCP and DNS"}, // as the gatekeeper opens one
	},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		t.Fatal(err)
	}
	in := open(t, o, setup{mode: mode, session: session, recorder: chain.Recorder(receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"})})
	do(in)
	in.hangUp()
	in.door.Close(enforcers.CodeRevoked)
	if _, err := chain.Close(t.Context(), receipts.Close{Reason: "completed"}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := n.Export(t.Context(), &b, notary.Filter{Sessions: []string{session}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), keys.RootFingerprint()
}

func verify(export []byte, root string) *receipts.Result {
	return receipts.Verify(bytes.NewReader(export), receipts.Options{Root: root})
}

// receiptTamper: what a door's session wrote verifies, and no edit, omission,
// exchange or loan from another session does.
func receiptTamper(t *testing.T, o *outside, mode receipts.Mode) {
	do := func(in *inside) {
		_ = in.fetch(good, "/v1/x")
		_ = in.fetch("evil.test", "/")
	}
	export, root := recorded(t, o, mode, "s-1", do)
	if r := verify(export, root); r.Exit != receipts.ExitComplete {
		t.Fatalf("untampered: %s", r.Verdict())
	}
	// A receipt of another session, to replay here.
	other, _ := recorded(t, o, mode, "s-2", do)
	frames := exported(t, export)
	var at []int // of receipts
	for i, f := range frames {
		if strings.HasPrefix(f, "receipt ") {
			at = append(at, i)
		}
	}
	if len(at) < 4 {
		t.Fatalf("only %d receipts", len(at))
	}
	loan := ""
	for _, f := range exported(t, other) {
		if strings.HasPrefix(f, "receipt ") && strings.Contains(f, `"type":"gatehouse.decision`) {
			loan = f
		}
	}
	change := func(f func(frames []string) []string) []byte {
		return []byte(strings.Join(f(append([]string(nil), frames...)), ""))
	}
	for name, b := range map[string][]byte{
		"edit": bytes.Replace(export, []byte(`"verdict":"deny"`), []byte(`"verdict":"allo"`), 1),
		"drop": change(func(f []string) []string { return append(f[:at[1]], f[at[1]+1:]...) }),
		"reorder": change(func(f []string) []string {
			f[at[1]], f[at[2]] = f[at[2]], f[at[1]]
			return f
		}),
		"replay_in_other_session": change(func(f []string) []string {
			f[at[1]] = loan
			return f
		}),
		"twice":   change(func(f []string) []string { return append(f[:at[2]], f[at[1]:]...) }),
		"cut_off": change(func(f []string) []string { return f[:at[len(at)-1]] }),
	} {
		if bytes.Equal(b, export) {
			t.Errorf("%s changed nothing", name)
			continue
		}
		if r := verify(b, root); r.Exit == receipts.ExitComplete || r.Exit == receipts.ExitAdmitted {
			t.Errorf("%s: %s", name, r.Verdict())
		}
	}
	if r := verify(other, root); r.Exit != receipts.ExitUntrusted {
		t.Errorf("another log's export: %s", r.Verdict())
	}
}

// exported cuts an export into its frames: a line, and after one that ends in a
// length that many bytes and a newline (docs/receipts-spec.md, section 10).
func exported(t *testing.T, b []byte) (frames []string) {
	t.Helper()
	bodied := regexp.MustCompile(`^(keyset|bundle|opening|receipt|event|checkpoint|manifest|mark) (?:.* )?(\d+)\n$`)
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return frames
		}
		if m := bodied.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, n+1)
			if _, err := io.ReadFull(r, body); err != nil {
				t.Fatal(err)
			}
			line += string(body)
		}
		frames = append(frames, line)
	}
}

// shadowClaims: what passed in shadow is told as what would have been blocked,
// what the door cannot see is named as not observed, and nothing is claimed
// beyond that.
func shadowClaims(t *testing.T, o *outside, mode receipts.Mode) {
	export, root := recorded(t, o, mode, "s-1", func(in *inside) { _ = in.fetch("evil.test", "/") })
	r := verify(export, root)
	if r.Exit != receipts.ExitComplete {
		t.Fatalf("receipts: %s", r.Verdict())
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	passed := regexp.MustCompile(`(\d+) would have been blocked and passed`).FindStringSubmatch(text.String())
	if passed == nil || (passed[1] == "0") != (mode == receipts.Hard) {
		t.Errorf("in %s the record says %q", mode, passed)
	}
	if len(r.Observation.NotObserved) != 2 || !strings.Contains(text.String(), "protocols other than TCP and DNS") || r.Observation.Level > 2 {
		t.Errorf("observation %+v: the door does not see what is beside it, and nothing proved that it is the only exit", r.Observation)
	}
	for _, word := range []string{"contained", "safe", "complete record of the agent"} {
		if regexp.MustCompile(`(?i)\b`+word+`\b`).MatchString(text.String()) || bytes.Contains(bytes.ToLower(export), []byte(word)) {
			t.Errorf("%q is claimed:\n%s", word, text.String())
		}
	}
}
