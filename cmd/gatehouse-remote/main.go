//go:build linux

// Command gatehouse-remote is the reference server of the remote provider: it
// runs the sandboxes of one Gatehouse node's sessions on this machine, with the
// same bubblewrap sandbox that the node would use itself. It reads a token, a
// certificate and a key; it writes only below --dir, and nothing of a session
// stays there.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox/initd"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/gatekeeper/sandbox/probe"
	"gatehouse/gatekeeper/sandbox/remote"
	"gatehouse/gatekeeper/sandbox/remote/remoted"
	"gatehouse/gatekeeper/sandbox/remote/shim"
	"gatehouse/internal/problem"
)

func main() {
	if exit, ok := initd.Main(os.Args, initd.Probe{Run: probe.Run, Controls: probe.Controls, Attempt: probe.Attempt}); ok {
		os.Exit(exit)
	}
	if len(os.Args) == 2 && os.Args[1] == shim.Role {
		os.Exit(shim.Main())
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "gatehouse-remote: %v\n", err)
		if hint := problem.HintOf(err); hint != "" {
			fmt.Fprintf(os.Stderr, "hint: %s\n", hint)
		}
		os.Exit(1)
	}
}

// shimUID is the default user of shims: beside the agents' range.
const shimUID = 609999

func run(args []string) error {
	flags := flag.NewFlagSet("gatehouse-remote", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8443", "address of the contract")
	cert := flags.String("cert", "", "PEM file of the certificate")
	key := flags.String("key", "", "PEM file of its key")
	token := flags.String("token-file", "", "file with the token that the node shows")
	dir := flags.String("dir", "", "folder for sessions while they live")
	uid := flags.Uint("shim-uid", shimUID, "user of the shims, when started as root")
	first := flags.Uint("first-uid", 610000, "first of the agents' users, when started as root")
	last := flags.Uint("last-uid", 610999, "last of the agents' users")
	sessions := flags.Int("sessions", 64, "sandboxes at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cert == "" || *key == "" || *token == "" || *dir == "" {
		return errors.New("--cert, --key, --token-file and --dir are needed")
	}
	users := local.UIDRange{First: uint32(*first), Last: uint32(*last)}
	within := func(u uint32) bool { return u >= users.First && u <= users.Last }
	if *uid == 0 || within(uint32(*uid)) {
		return errors.New("--shim-uid must be neither root nor one of the agents' users")
	}
	agents := within
	if own := uint32(os.Geteuid()); own != 0 {
		agents = func(u uint32) bool { return u == own } // an ordinary user's agents share it
	}
	secret, err := os.ReadFile(*token)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	store, err := remoted.NewStore(filepath.Join(*dir, "artifacts"))
	if err != nil {
		return err
	}
	transcripts := filepath.Join(*dir, "transcripts")
	p, err := local.New(local.Options{Run: filepath.Join(*dir, "run"), Transcripts: transcripts, UIDs: users, Put: store.Put})
	if err != nil {
		return err
	}
	s, err := remoted.New(remoted.Options{
		Provider: p, Artifacts: store, Token: bytes.TrimSpace(secret), Dir: filepath.Join(*dir, "doors"), Transcripts: transcripts,
		Program: "/proc/self/exe", ShimUID: uint32(*uid), Agents: agents, Sessions: *sessions,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// A node that vanished without a word is noticed by what it does not
	// acknowledge: its runs end, and with them their agents.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(remote.Silent.Milliseconds()))
		})
		return errors.Join(cerr, err)
	}}
	l, err := lc.Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
	}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	fmt.Printf("gatehouse-remote listens on %s\n", l.Addr())
	if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
