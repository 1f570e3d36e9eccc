package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kernel writes files as /proc and /sys have them.
func kernel(t *testing.T, files map[string]string) string {
	t.Helper()
	root := tempDir(t)
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func levelsOf(found []finding) (out []string) {
	for _, f := range found {
		out = append(out, f.Check+" "+f.Level)
	}
	return out
}

// TestDoctorKernel: what other machines' kernels say. Every finding that is not ok
// has its fix.
func TestDoctorKernel(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"open":                {map[string]string{"proc/sys/user/max_user_namespaces": "15000", "proc/sys/kernel/seccomp/actions_avail": "kill_process kill_thread errno allow"}, []string{"namespaces ok", "apparmor ok", "seccomp ok"}},
		"no_seccomp":          {nil, []string{"namespaces ok", "apparmor ok", "seccomp fail"}},
		"user_namespaces_off": {map[string]string{"proc/sys/user/max_user_namespaces": "0"}, []string{"namespaces fail", "apparmor ok", "seccomp fail"}},
		"debian_10":           {map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0"}, []string{"namespaces fail", "apparmor ok", "seccomp fail"}},
		"ubuntu_24": {map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1", "sys/kernel/security/apparmor/profiles": "bwrap (enforce)"},
			[]string{"namespaces ok", "apparmor warn", "seccomp fail"}},
		"ubuntu_24_with_the_profile": {map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1", "sys/kernel/security/apparmor/profiles": "gatehouse-bwrap (unconfined)"},
			[]string{"namespaces ok", "apparmor ok", "seccomp fail"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := kernel(t, c.files)
			found := slices.Concat(checkNamespaces(root), checkSeccomp(root))
			if got := levelsOf(found); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for _, f := range found {
				if (f.Level == levelOK) != (f.Fix == "") {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestDoctorUnit: the unit of deploy/ is well; one that was hardened by a
// checklist is not, in a drop-in either.
func TestDoctorUnit(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/systemd/gatehouse.service")
	if err != nil {
		t.Fatal(err)
	}
	caps := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(string(unit))[1]
	if got := len(strings.Fields(caps)); got != len(serviceCaps) || !strings.Contains(caps, "CAP_SYS_ADMIN") {
		t.Errorf("the unit has %s, doctor drops all but %v", caps, serviceCaps)
	}
	for name, c := range map[string]struct {
		change func(string) string
		dropIn string
		want   []string
	}{
		"as_shipped":    {func(s string) string { return s }, "", []string{"unit ok"}},
		"hardened":      {func(s string) string { return strings.Replace(s, "[Service]", "[Service]\nRestrictNamespaces=yes", 1) }, "", []string{"unit fail"}},
		"in_a_drop_in":  {func(s string) string { return s }, "[Service]\nProtectKernelTunables=yes\n", []string{"unit fail"}},
		"taken_back":    {func(s string) string { return s }, "[Service]\nProtectKernelTunables=no\n", []string{"unit ok"}},
		"no_delegation": {func(s string) string { return strings.Replace(s, "Delegate=yes", "", 1) }, "", []string{"unit fail"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(tempDir(t), "gatehouse.service")
			if err := os.WriteFile(path, []byte(c.change(string(unit))), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.dropIn != "" {
				if err := os.Mkdir(path+".d", 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path+".d/local.conf", []byte(c.dropIn), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := levelsOf(checkUnit(path)); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if got := levelsOf(checkUnit(filepath.Join(tempDir(t), "none"))); !slices.Equal(got, []string{"unit warn"}) {
		t.Errorf("without a unit: %v", got)
	}
}

// TestDoctorDisk: the kinds of disk that are not one.
func TestDoctorDisk(t *testing.T) {
	if got := checkDisk(filepath.Join(tempDir(t), "not", "there", "yet")); len(got) != 1 || got[0].Level == levelFail {
		t.Errorf("a folder that is not there yet: %+v", got)
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the rest mounts, and a mount needs root")
	}
	dir := tempDir(t)
	if err := unix.Mount("gatehouse-test", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("SKIPPED: no tmpfs to be had here: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if got := checkDisk(dir); got[0].Level != levelFail || !strings.Contains(got[0].Detail, "MiB free") {
		t.Errorf("16 MiB: %+v", got)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if got := checkDisk(dir); got[0].Level != levelFail || got[0].Detail != "read-only" {
		t.Errorf("read-only: %+v", got)
	}
}

// TestDoctorAsService runs the live probe with the unit's capabilities and
// no_new_privs, in a process of its own.
func TestDoctorAsService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the unit runs as root, and so does this")
	}
	dir := nodeDir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if _, err := initNode(dir, "test.gatehouse.example/node-1"); err != nil {
		t.Fatal(err)
	}
	out, err := hear(t, exec.Command(binary, "-c", filepath.Join(dir, "gatehouse.yaml"), "doctor", "--as-service", "-o", "ndjson")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"check":"service","level":"ok"`, `"check":"unit","level":"`, `"check":"probe","level":"ok"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// TestDoctorGroups: an ordinary user's further groups are named, since no session
// of that user can drop them; root's sessions have none.
func TestDoctorGroups(t *testing.T) {
	for name, c := range map[string]struct {
		uid, gid int
		groups   []int
		want     string // "" = nothing to say
	}{
		"root":               {0, 0, []int{0, 4}, ""},
		"none":               {1000, 1000, nil, ""},
		"its_own":            {1000, 1000, []int{1000}, ""},
		"a_further_one":      {1000, 1000, []int{1000, 987654}, "987654"},
		"root_s_as_well":     {1000, 1000, []int{0}, "root"},
		"several_are_listed": {1000, 1000, []int{987653, 987654}, "987653, 987654"},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkGroups(c.uid, c.gid, c.groups)
			if c.want == "" && len(found) == 0 {
				return
			}
			if len(found) != 1 || found[0].Level != levelWarn || found[0].Fix == "" || c.want == "" || !strings.Contains(found[0].Detail, "groups "+c.want+":") {
				t.Errorf("%+v, want %q", found, c.want)
			}
		})
	}
}
