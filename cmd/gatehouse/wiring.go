package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"

	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/internal/blob"
	"gatehouse/internal/config"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// state is the layout of the state folder.
type state struct {
	dir, keys, journal, log, blobs, nats, wasm, run string
}

func stateOf(cfg *config.Config) state {
	dir := cfg.StateDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	return state{dir: dir, keys: in("keys"), journal: in("journal"), log: in("log"), blobs: in("blobs"), nats: in("nats"), wasm: in("wasm"), run: in("run")}
}

// openState makes the folders, each closed to every other user: a root node
// shows sandboxes what they need through descriptors, not through paths.
func openState(cfg *config.Config) (state, error) {
	s := stateOf(cfg)
	if _, err := os.Stat(s.keys); errors.Is(err, fs.ErrNotExist) {
		return s, problem.New(problem.ConfigInvalid, "the state folder has no keys", "run `gatehouse init` first")
	}
	if err := refuseBackup(s.dir); err != nil {
		return s, err
	}
	for path, mode := range map[string]fs.FileMode{s.dir: 0o700, s.run: 0o700, s.journal: 0o700, s.log: 0o700, s.blobs: 0o700, s.nats: 0o700, s.wasm: 0o700} {
		if err := os.MkdirAll(path, mode); err != nil {
			return s, fmt.Errorf("couldn't make the state folder: %w", err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return s, fmt.Errorf("couldn't close the state folder: %w", err)
		}
	}
	return s, nil
}

// newLocal returns the provider of bubblewrap sandboxes.
func newLocal(cfg *config.Config, s state, blobs *blob.Store) (*local.Provider, error) {
	o := local.Options{Run: s.run, Transcripts: filepath.Join(s.dir, "transcripts"), UIDs: local.UIDRange(cfg.Sandbox.UIDs)}
	if blobs != nil {
		o.Put = blobs.Put
	}
	return local.New(o)
}

// newUpstream returns the one client that may dial. Its resolver is the
// machine's own, unless dev substitutions bring another. tripped is told of a
// session whose answer held a credential; the receipt names the connection.
func newUpstream(cfg *config.Config, in injectors, tripped func(session, connection string), dev bool) (*upstream.Client, error) {
	o := upstream.Options{Internal: cfg.InternalNetworks, Inject: in, Tripped: tripped}
	if conf, err := dns.ClientConfigFromFile("/etc/resolv.conf"); err == nil && len(conf.Servers) > 0 {
		if server, err := netip.ParseAddr(conf.Servers[0]); err == nil {
			o.Resolver = netip.AddrPortFrom(server, 53)
		}
	}
	if dev && !cfg.Dev.Zero() {
		d, err := devOf(cfg)
		if err != nil {
			return nil, err
		}
		o.Dev = d
	}
	return upstream.New(o)
}

func devOf(cfg *config.Config) (*upstream.Dev, error) {
	d := &upstream.Dev{Upstreams: map[netip.AddrPort]netip.AddrPort{}}
	for from, to := range cfg.Dev.Upstreams {
		f, err1 := netip.ParseAddrPort(from)
		t, err2 := netip.ParseAddrPort(to)
		if err := errors.Join(err1, err2); err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "dev.upstreams: want address:port on both sides", "")
		}
		d.Upstreams[f] = t
	}
	if cfg.Dev.DNS != "" {
		var err error
		if d.DNS, err = netip.ParseAddrPort(cfg.Dev.DNS); err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "dev.dns: want address:port", "")
		}
	}
	if cfg.Dev.CA != "" {
		pem, err := os.ReadFile(cfg.Path(cfg.Dev.CA))
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "dev.ca: couldn't read the file", "")
		}
		d.Roots = x509.NewCertPool()
		if !d.Roots.AppendCertsFromPEM(pem) {
			return nil, problem.New(problem.ConfigInvalid, "dev.ca: no certificate in the file", "")
		}
	}
	return d, nil
}

// keysetsOf returns the keys by which events are taken: this node's, and those of
// the nodes that share its streams.
func keysetsOf(cfg *config.Config, own *notary.Keys) (map[string]*receipts.Keyset, error) {
	out := map[string]*receipts.Keyset{own.Origin(): own.Keyset()}
	for i, p := range cfg.Nodes {
		at := fmt.Sprintf("nodes[%d].keyset", i)
		note, err := os.ReadFile(cfg.Path(p.Keyset))
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, at+": couldn't read the file", "run gatehouse key export on that node")
		}
		ks, err := receipts.ParseKeyset(note, strings.ToLower(p.Root))
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, at+": not a keyset of that root", "")
		}
		if out[ks.Origin] != nil {
			return nil, problem.New(problem.ConfigInvalid, at+": two nodes have the log "+ks.Origin, "each node needs keys of its own")
		}
		out[ks.Origin] = ks
	}
	return out, nil
}

// listenTCP opens one listener, with the configured TLS when secure.
func listenTCP(cfg *config.Config, addr string, secure bool) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't listen on "+addr, "choose another address under listen:")
	}
	if !secure || cfg.TLS == nil {
		return l, nil
	}
	cert, err := tls.LoadX509KeyPair(cfg.Path(cfg.TLS.Cert), cfg.Path(cfg.TLS.Key))
	if err != nil {
		_ = l.Close()
		return nil, problem.Wrap(err, problem.ConfigInvalid, "tls: couldn't load the certificate and key", "")
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}), nil
}
