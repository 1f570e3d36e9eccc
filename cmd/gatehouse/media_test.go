//go:build linux

package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// blockDisk is a real ext4 file system on a loop device that can be broken
// under a running node.
type blockDisk struct {
	t      *testing.T
	device string
	dir    string
}

// newBlockDisk mounts one at dir.
func newBlockDisk(t *testing.T, dir string) *blockDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a disk that breaks needs a loop device, and a loop device needs root")
	}
	for _, tool := range []string{"losetup", "mkfs.ext4"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: a disk that breaks needs %s: %v", tool, err)
		}
	}
	image := filepath.Join(t.TempDir(), "disk.img") // what is on it is searched where it is mounted
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("SKIPPED: no loop device to be had here: %v\n%s", err, out)
	}
	d := &blockDisk{t: t, device: strings.TrimSpace(string(out)), dir: dir}
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", d.device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v\n%s", err, out)
		}
	})
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.mount(); err != nil {
		t.Skipf("SKIPPED: ext4 cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *blockDisk) mount() error {
	return unix.Mount(d.device, d.dir, "ext4", unix.MS_NODEV, "errors=remount-ro")
}

// FS_IOC_SHUTDOWN is the kernel's own way to make a file system fail: from then
// on every read that is not cached and every write is EIO.
const (
	fsIocShutdown   = 0x8004587d // _IOR('X', 125, __u32)
	shutdownNoFlush = 2          // what is only in the page cache is lost, as with a cable pulled
)

// pull makes every later write fail with EIO.
func (d *blockDisk) pull() {
	d.t.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	flags := uint32(shutdownNoFlush)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocShutdown, uintptr(unsafe.Pointer(&flags))); e != 0 {
		d.t.Skipf("SKIPPED: this kernel cannot shut ext4 down: %v", e)
	}
}

// protect has the kernel meet an inconsistency, after which the file system is
// read-only.
func (d *blockDisk) protect() {
	d.t.Helper()
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("gatehouse test"), 0); err != nil {
		d.t.Skipf("SKIPPED: this kernel cannot make ext4 read-only on demand: %v", err)
	}
}

// replace mounts the disk anew. What a namespace that is going away still holds
// is the broken file system of before, so it tries until a write succeeds.
func (d *blockDisk) replace() {
	d.t.Helper()
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err = unix.Unmount(d.dir, 0); err == nil {
			if out, e := exec.Command("fsck.ext4", "-p", d.device).CombinedOutput(); e != nil && !errors.As(e, new(*exec.ExitError)) {
				d.t.Fatalf("fsck.ext4: %v\n%s", e, out)
			}
			if err = d.mount(); err != nil {
				d.t.Fatal(err)
			}
			probe := filepath.Join(d.dir, "probe")
			if err = errors.Join(os.WriteFile(probe, nil, 0o600), os.Remove(probe)); err == nil {
				return
			}
		}
		if time.Now().After(end) {
			d.t.Fatal("the disk cannot be mounted anew: ", err)
		}
	}
}

// TestDiskBreaks breaks the disk under a running node: no delivery is answered
// 200 that is not kept, nothing more leaves a hard session, the node ends by
// itself saying why, does not start on the broken disk, and goes on with all of
// it when the disk is well.
func TestDiskBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a disk that breaks takes a minute; make test runs it")
	}
	for name, breakIt := range map[string]func(*blockDisk){"EIO": (*blockDisk).pull, "read_only": (*blockDisk).protect} {
		t.Run(name, func(t *testing.T) {
			world, site := listedWorld(t)
			config, bundle := knocker(world)
			dir := nodeDir(t)
			disk := newBlockDisk(t, filepath.Join(dir, "state"))
			n := newLiveNodeOn(t, dir, config, bundle)
			n.args = []string{"--dev"}
			n.start()
			kept := n.deliver(failure(1), quiet(2))
			n.until("asking outside", func() bool { return site.Requests() > 3 })

			breakIt(disk)
			refused := 0
			for run := 1000; refused < 3 && run < 100_000; run++ {
				switch a, err := n.send(quiet(run)); {
				case err != nil: // the node has ended
					refused++
				case a.Status == http.StatusOK:
					kept = append(kept, a.ID)
				case a.Status == http.StatusServiceUnavailable:
					refused++
				case a.Status == http.StatusTooManyRequests:
					time.Sleep(20 * time.Millisecond) // the endpoint's rate
				default:
					t.Fatalf("answered %d %s", a.Status, a.Code)
				}
			}
			if refused < 3 {
				t.Fatal("the disk never broke")
			}
			select {
			case <-n.exited:
			case <-time.After(patience):
				t.Fatal("the node goes on without a journal")
			}
			if code := n.cmd.ProcessState.ExitCode(); code != exitFailed {
				t.Errorf("the node ended with %d, want %d", code, exitFailed)
			}
			if log, err := os.ReadFile(n.path("log")); err != nil || !strings.Contains(string(log), "the journal cannot be written") {
				t.Errorf("the node does not say why it ended: %v", err)
			}
			n.cmd = nil
			// Promise 3: the session ended with the node that could not write.
			at := site.Requests()
			if out := n.gatehouse(exitFailed, "serve", "--dev"); !strings.Contains(out, "input/output error") && !strings.Contains(out, "read-only file system") {
				t.Errorf("serve on a broken disk: %s", out)
			}
			if now := site.Requests(); now != at {
				t.Errorf("%d requests left a session without a node", now-at)
			}

			disk.replace()
			n.start()
			if again := n.deliver(quiet(2_000_000)); again[0] == "" {
				t.Fatal("nothing is taken after the repair")
			}
			n.settled(kept...)
			n.gatehouse(exitOK, "rebuild", "--check")
			n.gatehouse(exitOK, "receipts", "export", "-f", n.path("all.gh"))
			root := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
			// Whole, its end unproven; or with the outcome that nobody knows.
			if code := verifyCode(t, n, root); code != 3 && code != 5 {
				t.Errorf("receipts verify: exit %d", code)
			}
			n.stop()
		})
	}
}

// verifyCode is the exit code of `receipts verify` over all.gh.
func verifyCode(t *testing.T, n *liveNode, root string) int {
	t.Helper()
	cmd := hear(n.t, exec.Command(binary, "receipts", "verify", n.path("all.gh"), "--root", root))
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	t.Logf("verify: exit %d\n%s", cmd.ProcessState.ExitCode(), out)
	return cmd.ProcessState.ExitCode()
}
