//go:build linux

package shim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox/remote"
)

// Role is argv[1] of the shim: `<program> shim`.
const Role = "shim"

// listenerFD is the socket that the shim accepts from.
const listenerFD = 3

const (
	connections   = 256 // at a time, as a door takes
	connectWithin = 10 * time.Second
	startWithin   = 15 * time.Second
)

// Process is a shim that runs.
type Process struct {
	UID  uint32 // its user
	PID  int
	in   io.Closer
	done chan struct{}
}

// Start runs program as the shim of one door, as user uid when this process is
// root. The key goes through a pipe; l stays open in the caller, who closes it.
// The shim ends with Stop, or with this process.
func Start(program string, uid uint32, l *os.File, key *remote.DoorKey) (*Process, error) {
	raw, err := json.Marshal(key)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	cmd := exec.Command(program, Role)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{}, []*os.File{l}
	p := &Process{UID: uint32(os.Geteuid()), done: make(chan struct{})}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		p.UID = uid
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	p.PID, p.in = cmd.Process.Pid, in
	late := time.AfterFunc(startWithin, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_, werr := in.Write(append(raw, '\n'))
	said := make([]byte, 16)
	n, _ := out.Read(said) // "ready", or the end
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	if werr != nil || strings.TrimSpace(string(said[:n])) != "ready" {
		_ = cmd.Process.Kill()
		p.Stop()
		return nil, errors.New("shim: it did not start")
	}
	return p, nil
}

// Done is closed when the shim is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the shim and waits for its end.
func (p *Process) Stop() {
	_ = p.in.Close()
	<-p.done
}

// Main is the shim. It returns when its standard input ends.
func Main() int {
	// Not even a process of the same user reads the key out of the memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return complain(err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return complain(err)
	}
	in := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20))
	var key remote.DoorKey
	if err := in.Decode(&key); err != nil {
		return complain(err)
	}
	config, err := config(&key)
	if err != nil {
		return complain(err)
	}
	f := os.NewFile(listenerFD, "door")
	l, err := net.FileListener(f)
	if err != nil {
		return complain(err)
	}
	_ = f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started it is gone
		cancel()
		_ = l.Close()
	}()
	fmt.Println("ready")
	serve(ctx, l, func(ctx context.Context) (*tls.Conn, error) {
		d := tls.Dialer{Config: config}
		c, err := d.DialContext(ctx, "tcp", key.Address)
		if err != nil {
			return nil, err
		}
		return c.(*tls.Conn), nil
	})
	return 0
}

func config(key *remote.DoorKey) (*tls.Config, error) {
	own, err := tls.X509KeyPair(key.Certificate, key.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(key.CA) {
		return nil, errors.New("no authority for the door")
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: key.Name, MinVersion: tls.VersionTLS13}, nil
}

// serve joins every connection to one of its own to the door. It stops
// accepting while it carries as many as a door takes (SB-19).
func serve(ctx context.Context, l net.Listener, dial func(context.Context) (*tls.Conn, error)) {
	slots := make(chan struct{}, connections)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := l.Accept()
		if err != nil {
			<-slots
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer c.Close()
			within, cancel := context.WithTimeout(ctx, connectWithin)
			defer cancel()
			out, err := dial(within)
			if err != nil {
				return // the agent's connection is reset, as by a door that is shut
			}
			stop := context.AfterFunc(ctx, func() {
				_ = out.NetConn().Close()
				_ = c.Close()
			})
			defer stop()
			remote.Join(out, c.(*net.UnixConn))
		})
	}
}

func complain(err error) int {
	fmt.Fprintf(os.Stderr, "shim: %v\n", err)
	return 1
}
