//go:build linux

package local_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
)

func digest(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func TestArtifacts(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "host-secret") // SB-34
	if err := os.WriteFile(secret, []byte("canary of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	stored := make(map[string]string)
	p, _ := provider(t, func(o *local.Options) {
		o.Put = func(r io.Reader) (string, int64, error) {
			b, err := io.ReadAll(r)
			stored[digest(string(b))] = string(b)
			return digest(string(b)), int64(len(b)), err
		}
	})
	b := start(t, p, sandbox.Spec{Argv: []string{"/bin/sh", "-c", `cd /gatehouse/out
echo report > report.txt
mkdir -p a/b && echo nested > a/b/nested
ln -s ` + secret + ` link
ln -s /etc/passwd passwd
ln -s /workspace tree
ln -s ../../../../../../../../../../../../..` + secret + ` climb
mkfifo pipe
echo odd > '..odd'
echo hidden > .hidden
mkdir closed && echo x > closed/x && chmod 000 closed
ln report.txt twin`}}, nil)
	r := finish(t, b)
	want := map[string]string{
		"report.txt": digest("report\n"), "twin": digest("report\n"), "a/b/nested": digest("nested\n"),
		"..odd": digest("odd\n"), ".hidden": digest("hidden\n"),
	}
	skipped := []string{
		"climb: not a regular file", "link: not a regular file", "passwd: not a regular file", "pipe: not a regular file", "tree: not a regular file",
	}
	if os.Geteuid() == 0 {
		want["closed/x"] = digest("x\n")
	} else {
		skipped = append(skipped, "closed: unreadable")
	}
	if diff := cmp.Diff(want, r.Artifacts); diff != "" {
		t.Errorf("artifacts (-want +got):\n%s", diff)
	}
	slices.Sort(skipped)
	slices.Sort(r.Skipped)
	if diff := cmp.Diff(skipped, r.Skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	for _, content := range stored {
		if strings.Contains(content, "canary") || strings.Contains(content, "root:x") {
			t.Errorf("a file from outside was collected: %q", content)
		}
	}
}

func TestQuota(t *testing.T) {
	cases := map[string]struct {
		script string
		end    func(r result) bool
	}{
		"SB-38_one_file": {
			// The folder itself counts too, so the watcher may be quicker than stat.
			"head -c 30000000 /dev/zero > /workspace/big; echo rc $?; stat -c %s /workspace/big",
			func(r result) bool {
				return strings.HasPrefix(r.Detail, "quota: 100") || r.Exit == 0 && strings.Contains(r.out, "\n10000000\n")
			},
		},
		"SB-38_many_files": {
			"i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > /home/agent/$i || exit 1; done",
			func(r result) bool {
				return r.Reason == sandbox.Faulted && strings.HasPrefix(r.Detail, "quota: ")
			},
		},
		"SB-38_tmp_counts": {
			"i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > /tmp/$i || exit 1; done",
			func(r result) bool {
				return r.Reason == sandbox.Faulted && strings.HasPrefix(r.Detail, "quota: ")
			},
		},
		"SB-38_nameless_files_count": {
			`perl -e 'for (1..400) { open my $f, ">", "/workspace/x" or die; unlink "/workspace/x"; print $f "x" x 1000000; push @f, $f; select undef, undef, undef, 0.02 } print "held them all\n"; sleep 60'`,
			func(r result) bool {
				return r.Reason == sandbox.Faulted && strings.HasPrefix(r.Detail, "quota: ")
			},
		},
		"SB-38_nameless_files_of_a_thread": {
			`/usr/bin/python3 -c '
import ctypes, os, threading, time
def hold():
    ctypes.CDLL(None).unshare(0x400)  # CLONE_FILES: a table of its own
    for i in range(400):
        fd = os.open("/workspace/x", os.O_CREAT | os.O_WRONLY)
        os.unlink("/workspace/x")
        os.posix_fallocate(fd, 0, 1000000)
        time.sleep(0.02)
    print("held them all", flush=True)
    time.sleep(60)
t = threading.Thread(target=hold); t.start(); t.join()'`,
			func(r result) bool {
				return r.Reason == sandbox.Faulted && strings.HasPrefix(r.Detail, "quota: ")
			},
		},
		"SB-38_files_under_way_count": {
			`/usr/bin/python3 -c '
import array, os, socket, time
a, b = socket.socketpair()
for i in range(400):
    fd = os.open("/workspace/x", os.O_CREAT | os.O_WRONLY)
    os.unlink("/workspace/x")
    os.posix_fallocate(fd, 0, 1000000)
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    time.sleep(0.02)
print("all under way", flush=True)
time.sleep(60)'`,
			func(r result) bool {
				return r.Reason == sandbox.Faulted && strings.HasPrefix(r.Detail, "quota: files under way")
			},
		},
		"SB-38_closed_folders_count": {
			"mkdir /workspace/d; i=0; while :; do i=$((i+1)); chmod 700 /workspace/d; head -c 1000000 /dev/zero > /workspace/d/$i || exit 1; chmod 000 /workspace/d; sleep 0.02; done",
			func(r result) bool {
				return r.Reason == sandbox.Faulted && strings.HasPrefix(r.Detail, "quota: ")
			},
		},
		"SB-37_shm_is_bounded": {
			"head -c 100000000 /dev/zero > /dev/shm/big; echo rc $?; stat -c %s /dev/shm/big",
			func(r result) bool { return r.Exit == 0 && strings.Contains(r.out, "\n10000000\n") },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			needs(t, c.script)
			if r := run(t, sandbox.Spec{Quota: 10_000_000}, nil, c.script); !c.end(r) {
				t.Errorf("end %+v\n%s", r.End, r.out)
			}
		})
	}
	t.Run("SB-37_shm_by_its_own_size", func(t *testing.T) {
		r := run(t, sandbox.Spec{}, nil, "head -c 100000000 /dev/zero > /dev/shm/big; stat -c %s /dev/shm/big")
		if !strings.Contains(r.out, "67108864") {
			t.Errorf("end %+v\n%s", r.End, r.out)
		}
	})
}

// TestFoldersAreClosed: what is delivered, and what an agent opens to the world,
// set-id bits included, stays out of reach of the machine's other users.
func TestFoldersAreClosed(t *testing.T) {
	p, o := provider(t)
	start(t, p, sandbox.Spec{Argv: []string{"true"}}, nil)
	for _, dir := range []string{o.Run, filepath.Join(o.Run, "s-1"), o.Transcripts} {
		t.Run("SB-35_"+filepath.Base(dir), func(t *testing.T) {
			if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
				t.Errorf("%s: mode %v, %v", dir, fi.Mode(), err)
			}
		})
	}
}

// TestHostileTrees: whatever the agent leaves, Close removes it.
func TestHostileTrees(t *testing.T) {
	cases := map[string]string{
		"closed_folders": "mkdir -p a/b/c && touch a/b/c/f && chmod 000 a/b/c a/b a",
		"deep":           `perl -e 'for (1..20000) { mkdir "d" or die; chdir "d" or die }'`,
		"deep_closed":    `perl -e 'for (1..3000) { mkdir "d" or die; chdir "d" or die; } for (1..3000) { chmod 0, "."; chdir ".." or last }'`,
		"odd_names":      `perl -e 'for (1..255) { next if chr eq "/"; open F, ">", chr($_)."x" }'`,
		"many":           `perl -e 'for (1..20000) { open F, ">", $_ }'`,
		"links":          "ln -s / root; ln -s . self; ln -s ../../../.. up; mkfifo p",
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			p, o := provider(t)
			m := mark(t)
			b := start(t, p, sandbox.Spec{Argv: []string{"/bin/sh", "-c", "cd /workspace && " + script}}, nil)
			finish(t, b)
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			nothingLeft(t, m, o)
		})
	}
}

func TestRootfsFolder(t *testing.T) {
	// A root file system of its own: one static program.
	root := t.TempDir()
	program, err := os.ReadFile(initPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/agent"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	open(t, root)
	p, _ := provider(t)
	b := start(t, p, sandbox.Spec{Rootfs: root, Argv: []string{"agent"}}, nil)
	report, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	judge(t, report)
	r := finish(t, b)
	if r.Exit != 2 || !strings.Contains(r.out, "not by hand") { // gatehouse-init itself, saying so
		t.Errorf("end %+v\n%s", r.End, r.out)
	}
	again := start(t, p, sandbox.Spec{Session: "s-2", Rootfs: root, Argv: []string{"/bin/sh"}}, nil)
	if _, err := again.Run(t.Context()); err == nil {
		t.Error("the host's programs are inside")
	}
}

func TestTranscriptKeepsBothStreams(t *testing.T) {
	r := run(t, sandbox.Spec{}, nil, "echo out; echo err >&2; cat; echo end-of-stdin; echo again > /dev/stdout; echo and > /dev/stderr")
	for _, want := range []string{"out\n", "err\n", "end-of-stdin\n", "again\n", "and\n"} {
		if !bytes.Contains([]byte(r.out), []byte(want)) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if !strings.HasSuffix(r.Final, "again\n") {
		t.Errorf("final %q", r.Final)
	}
}
