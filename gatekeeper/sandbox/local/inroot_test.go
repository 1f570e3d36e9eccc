//go:build linux

package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRootfsLinks: a link in an image is followed inside the image, never on the
// host: the node, which may be root, reads some of the image's files itself.
func TestRootfsLinks(t *testing.T) {
	const canary = "canary-of-the-host"
	host := t.TempDir()
	key := filepath.Join(host, "seal.key")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(key, canary)
	for name, c := range map[string]struct{ at, to string }{
		"file":          {"etc/localtime", key},
		"file_upwards":  {"etc/os-release", strings.Repeat("../", 30) + key},
		"trust":         {"etc/ssl/certs/ca-certificates.crt", key},
		"folder":        {"etc/fonts", host},
		"folder_of_etc": {"etc", host},
	} {
		t.Run(name, func(t *testing.T) {
			rootfs, etc := t.TempDir(), t.TempDir()
			if c.at == "etc" {
				write(filepath.Join(host, "localtime"), canary)
				write(filepath.Join(host, "fonts/x"), canary)
			}
			write(filepath.Join(rootfs, "usr/share/zoneinfo/UTC"), "zone")
			at := filepath.Join(rootfs, c.at)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(c.to, at)); err != nil {
				t.Fatal(err)
			}
			if err := makeEtc(etc, rootfs, []byte("session"), true); err != nil {
				t.Fatal(err)
			}
			err := filepath.WalkDir(etc, func(path string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				if b, err := os.ReadFile(path); err != nil || strings.Contains(string(b), canary) {
					t.Errorf("%s has what lies on the host (%v)", path, err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			args, err := bwrapArgs(layout{etc: etc}, rootfs, nil, "init", "", &sources{})
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range args {
				if a != "--ro-bind" {
					continue
				}
				if real, err := filepath.EvalSymlinks(args[i+1]); err == nil && strings.HasPrefix(real, host) {
					t.Errorf("%s of the host is shown as %s", args[i+1], args[i+2])
				}
			}
		})
	}
	t.Run("within", func(t *testing.T) { // as images have them
		rootfs, etc := t.TempDir(), t.TempDir()
		write(filepath.Join(rootfs, "usr/share/zoneinfo/UTC"), "zone")
		write(filepath.Join(rootfs, "usr/share/fonts/x"), "font")
		if err := errors.Join(os.Mkdir(filepath.Join(rootfs, "etc"), 0o755), os.Symlink("/usr/share/zoneinfo/UTC", filepath.Join(rootfs, "etc/localtime")), os.Symlink("/usr/share/fonts", filepath.Join(rootfs, "etc/fonts"))); err != nil {
			t.Fatal(err)
		}
		if err := makeEtc(etc, rootfs, nil, true); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(etc, "localtime")); string(b) != "zone" {
			t.Errorf("%q, %v", b, err)
		}
		args, err := bwrapArgs(layout{etc: etc}, rootfs, nil, "init", "", &sources{})
		if want := filepath.Join(rootfs, "usr/share/fonts") + " /etc/fonts"; err != nil || !strings.Contains(strings.Join(args, " "), want) {
			t.Errorf("no %q in %q, %v", want, args, err)
		}
	})
}
