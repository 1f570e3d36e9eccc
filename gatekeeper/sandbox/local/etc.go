//go:build linux

package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"gatehouse/gatekeeper/sandbox"
)

// etcFolders are shown read-only from the root file system's own /etc: program
// alternatives, Java's and fonts' configuration, certificates by hash.
var etcFolders = []string{"alternatives", "fonts", "crypto-policies", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk", "java"}

// etcFiles are copied from it. Everything else of /etc stays outside: shadow
// files, host keys, machine ids, and the tool configurations (gitconfig,
// npmrc, pip.conf) in which people keep credentials (SB-05, SB-48).
var etcFiles = []string{
	"ld.so.cache", "ld.so.conf", "localtime", "timezone", "mime.types", "services", "protocols", "os-release",
	"debian_version", "alpine-release", "redhat-release", "ssl/openssl.cnf", "inputrc", "login.defs",
}

// maskedConfigs are tool configurations below /usr, for the same reason.
var maskedConfigs = []string{"/usr/etc/npmrc", "/usr/local/etc/npmrc", "/usr/etc/gitconfig", "/usr/local/etc/gitconfig"}

// emptyFile, in /etc, is what masks them.
const emptyFile = "gatehouse/empty"

const (
	passwd = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
		"agent:x:1000:1000:agent:" + sandbox.Home + ":%s\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group    = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"
	hosts    = "127.0.0.1 localhost gatehouse\n::1 localhost ip6-localhost\n"
	nsswitch = "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"
	resolv   = "nameserver " + sandbox.ResolverAddr + "\noptions timeout:5 attempts:2\n"
)

// makeEtc fills dir, which becomes the sandbox's /etc.
func makeEtc(dir, rootfs string, trust []byte, door bool) error {
	for _, name := range etcFolders {
		if at, err := folderIn(rootfs, "etc/"+name); err != nil {
			return err
		} else if at != "" {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil { // a mount point
				return err
			}
		}
	}
	for _, name := range etcFiles {
		if err := copyFile(rootfs, "etc/"+name, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("etc: %w", err)
		}
	}
	resolver := resolv
	if !door {
		resolver = "# no door: no name is resolved\n"
	}
	for name, content := range map[string]string{
		"passwd":        fmt.Sprintf(passwd, shellOf(rootfs)),
		"group":         group,
		"hosts":         hosts,
		"nsswitch.conf": nsswitch,
		"resolv.conf":   resolver,
		"hostname":      "gatehouse\n",
		"shells":        "/bin/sh\n/bin/bash\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := makeTrust(dir, rootfs, trust); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, emptyFile), nil, 0o644)
}

func shellOf(rootfs string) string {
	if _, err := os.Stat(filepath.Join(rootOf(rootfs), "bin/bash")); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// absent reports whether a root file system just does not have something.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// copyFile copies the content of a root file system's regular file; a missing
// one is no error.
func copyFile(rootfs, from, to string) error {
	src, err := openIn(rootfs, from, os.O_RDONLY)
	if absent(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer src.Close()
	if fi, err := src.Stat(); err != nil || !fi.Mode().IsRegular() {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// environment is what the agent's process starts with: nothing of the host's
// (SB-01, SB-47), then the session's own additions.
func environment(s *sandbox.Spec, door bool) []string {
	env := map[string]string{
		"PATH":    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":    sandbox.Home,
		"USER":    "agent",
		"LOGNAME": "agent",
		"SHELL":   shellOf(s.Rootfs),
		"PWD":     sandbox.Workspace,
		"TMPDIR":  "/tmp",
		"LANG":    "C.UTF-8",
		"TERM":    "dumb",
	}
	if len(s.Trust) > 0 {
		for name, path := range trustVariables {
			env[name] = path
		}
	}
	if s.Proxy && door {
		proxy := "http://" + sandbox.ProxyAddr
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
			env[name], env[strings.ToLower(name)] = proxy, proxy
		}
		env["NO_PROXY"] = "localhost,127.0.0.1,::1"
		env["no_proxy"] = env["NO_PROXY"]
		env["NODE_USE_ENV_PROXY"] = "1" // Node's fetch reads the others only with it
	}
	// What the operator mounts is there to be used: an agent below /opt/agent/bin
	// is found by its name, before one of the system's.
	for i := len(s.Mounts) - 1; i >= 0; i-- {
		if fi, err := os.Stat(filepath.Join(s.Mounts[i].Source, "bin")); err == nil && fi.IsDir() {
			env["PATH"] = s.Mounts[i].Path + "/bin:" + env["PATH"]
		}
	}
	for k, v := range s.Env {
		env[k] = v
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}
