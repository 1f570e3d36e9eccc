package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/internal/api"
	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/wasm"
)

// natsLimit bounds what doctor asks of a server.
const natsLimit = 15 * time.Second

// examineNode looks at what the node keeps. It changes nothing but what a start
// changes: the torn tail of a stopped node's journal is cut.
func examineNode(ctx context.Context, cfg *config.Config) []finding {
	s := stateOf(cfg)
	client := api.NewClient(filepath.Join(s.dir, socketName))
	defer client.Close()
	var status api.Status
	running := client.Get(ctx, "/v1/status", nil, &status) == nil
	return slices.Concat(checkPorts(cfg, running), checkRecord(s, running, status), checkNATS(ctx, cfg, running, status), checkModules(ctx, cfg, s))
}

// checkRecord reads the whole record of a stopped node: every leaf against the
// seals, every seal against the one before it. A running node has done that.
func checkRecord(s state, running bool, status api.Status) []finding {
	if running {
		f := finding{"record", levelOK, fmt.Sprintf("the running node holds it, up to position %d", status.Bus.Durable-1), ""}
		for _, r := range status.Reasons {
			f.Level, f.Detail, f.Fix = levelFail, string(r.Code)+": "+r.Detail, r.Hint
		}
		return []finding{f}
	}
	switch _, err := os.Stat(s.journal); {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{{"record", levelOK, "none yet", ""}}
	case err != nil:
		return []finding{{"record", levelFail, err.Error(), remedy(err)}}
	}
	old, err := readShard(s.dir)
	if err != nil {
		return []finding{{"record", levelFail, err.Error(), remedy(err)}}
	}
	return []finding{{"record", levelOK, fmt.Sprintf("%d leaves, each under its seal; head %s", old.size, old.head), ""}}
}

// checkNATS compares the streams with their declaration.
func checkNATS(ctx context.Context, cfg *config.Config, running bool, status api.Status) []finding {
	if cfg.NATS.URL == "" {
		if running {
			return []finding{{"nats", levelOK, fmt.Sprintf("embedded, %s, stored up to position %d", status.Bus.Phase, status.Bus.Stored), ""}}
		}
		return []finding{{"nats", levelOK, "embedded: compared with the journal at each start", ""}}
	}
	ctx, cancel := context.WithTimeout(ctx, natsLimit)
	defer cancel()
	b, err := bus.Open(ctx, bus.Options{Node: cfg.Node, URL: cfg.NATS.URL, Creds: cfg.Path(cfg.NATS.Creds), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return []finding{{"nats", levelFail, err.Error(), remedy(err)}}
	}
	defer b.Close() //nolint:errcheck // asked only
	drift, err := b.Drift(ctx)
	if err != nil {
		return []finding{{"nats", levelFail, err.Error(), "check that the node's user may read stream information"}}
	}
	var found []finding
	for _, d := range drift {
		f := finding{"nats", levelWarn, d.String(), "correct it as deploy/nats/streams says"}
		if d.Loses {
			f.Level = levelFail
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		found = []finding{{"nats", levelOK, "the streams are as declared", ""}}
	}
	return found
}

// checkModules compiles the built-in enforcers and compares the bytes of each
// added one with the digest that names it.
func checkModules(ctx context.Context, cfg *config.Config, s state) []finding {
	fail := func(err error) []finding {
		return []finding{{"enforcers", levelFail, err.Error(), remedy(err)}}
	}
	o := wasm.Options{}
	if _, err := os.Stat(s.wasm); err == nil {
		o.CacheDir = s.wasm
	}
	host, err := wasm.NewHost(ctx, o)
	if err != nil {
		return fail(err)
	}
	defer host.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is kept
	builtin, err := host.Builtin(ctx)
	if err != nil {
		return fail(err)
	}
	kept := modulesOf(cfg)
	refs, err := kept.list()
	if err != nil {
		return fail(err)
	}
	for _, ref := range refs {
		if _, _, err := kept.open(ref); err != nil {
			return fail(fmt.Errorf("%s: %w", ref, err))
		}
	}
	return []finding{{"enforcers", levelOK, fmt.Sprintf("built-in %.6x..., %d added, all as their digests say", builtin.Digest(), len(refs)), ""}}
}

// serviceUnit is where an administrator puts deploy/systemd/gatehouse.service.
const serviceUnit = "/etc/systemd/system/gatehouse.service"

// serviceCaps is the CapabilityBoundingSet of deploy/systemd/gatehouse.service.
var serviceCaps = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_DAC_OVERRIDE, unix.CAP_KILL,
}

// notInUnit are the directives with which no sandbox starts, or with which one
// starts and something else is lost.
var notInUnit = []string{
	"ProtectKernelTunables", "ProcSubset", "RestrictNamespaces", "MemoryDenyWriteExecute", "PrivateUsers", "ProtectControlGroups",
	"ProtectProc", "SystemCallFilter", "RestrictSUIDSGID", "PrivateDevices",
}

// checkUnit reads the installed unit and its drop-ins.
func checkUnit(path string) []finding {
	files, err := filepath.Glob(path + ".d/*.conf")
	if err != nil {
		return []finding{{"unit", levelFail, err.Error(), remedy(err)}}
	}
	set, found := map[string]string{}, []finding{}
	for _, file := range append([]string{path}, files...) {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return []finding{{"unit", levelWarn, path + " is not installed", "install deploy/systemd/gatehouse.service there"}}
		}
		if err != nil {
			return []finding{{"unit", levelFail, err.Error(), remedy(err)}}
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && name != "" && name[0] != '#' && name[0] != ';' {
				set[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
	}
	for _, name := range notInUnit {
		if v, ok := set[name]; ok && v != "no" && v != "false" && v != "" {
			found = append(found, finding{"unit", levelFail, name + "=" + v, "remove it: deploy/systemd/gatehouse.service says why"})
		}
	}
	if v := set["Delegate"]; v == "" || v == "no" || v == "false" {
		found = append(found, finding{"unit", levelFail, "Delegate is not set: sessions get no limits", "set Delegate=yes"})
	}
	if len(found) == 0 {
		found = []finding{{"unit", levelOK, path + " starts sandboxes", ""}}
	}
	return found
}

// likeService puts this process under the unit's capability bounding set and
// no_new_privs, for the live probe that follows. There is no way back, and mounts
// stay as they are.
func likeService() finding {
	const name = "service"
	if os.Geteuid() != 0 {
		return finding{name, levelFail, "the unit runs as root, this does not", "run doctor --as-service as root"}
	}
	last := setting("/", "proc/sys/kernel/cap_last_cap")
	var top uintptr
	if _, err := fmt.Sscan(last, &top); err != nil {
		return finding{name, levelFail, "the kernel does not name its last capability", ""}
	}
	for c := uintptr(0); c <= top; c++ {
		if slices.Contains(serviceCaps, c) {
			continue
		}
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 && e != unix.EINVAL {
			return finding{name, levelFail, fmt.Sprintf("couldn't drop capability %d: %v", c, e), ""}
		}
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return finding{name, levelFail, "couldn't set no_new_privs: " + e.Error(), ""}
	}
	return finding{name, levelOK, "the probe below runs with the unit's capabilities and no_new_privs; its mounts are not repeated", ""}
}
