package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// paced is a task for the generator: requests that are due at times of their own,
// whether the one before is done or not. The times between them are exponential,
// and the same for every way: at even ones they would meet every timer of like
// length in what is measured, as a journal's linger, or none.
type paced struct {
	Network, Addr string        // where the way begins
	Target        string        // of the CONNECT, "" for none
	Host          string        // that is asked for
	CA            []byte        // PEM
	Every         time.Duration // on average
	Total         int
	CPU           int // to run on, -1 = any
}

// arrivals are when requests are due.
func arrivals(every time.Duration, total int) []time.Duration {
	due := make([]time.Duration, total)
	random := rand.New(rand.NewPCG(1, 2))
	var at time.Duration
	for i := range due {
		at += time.Duration(random.ExpFloat64() * float64(every))
		due[i] = at
	}
	return due
}

const pacedEnv = "GATEHOUSE_BENCH_PACED"

// pace returns the median time of a request from when it was due, in
// microseconds. The generator is a process of its own with a thread for each
// connection, on a processor of its own where there are two: a timer of the Go
// runtime may be half a millisecond late, more than what is measured here, and how
// late depends on what else the runtime has to do.
func (o *outsideWorld) pace(t *testing.T, w way, every time.Duration, total int) float64 {
	t.Helper()
	p := paced{Network: w.network, Addr: w.addr, Target: w.target, Host: w.host(), CA: w.ca, Every: every, Total: total, CPU: -1}
	if w.none {
		p.Target = ""
	}
	if p.CA == nil {
		p.CA = o.CA()
	}
	if n := runtime.NumCPU(); n > 1 {
		p.CPU = n - 1
		defer keepOff(t, p.CPU)()
	}
	task, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPacedGenerator$")
	cmd.Env = append(os.Environ(), pacedEnv+"="+string(task))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("generator of %s: %v\n%s", w.name, err, out)
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	var took []float64
	if err := json.Unmarshal(line, &took); err != nil || len(took) == 0 {
		t.Fatalf("generator of %s: %v\n%s", w.name, err, out)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// keepOff has the threads of this process leave a processor until the returned
// function is called.
func keepOff(t *testing.T, cpu int) (back func()) {
	t.Helper()
	var all, others unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	others = all
	others.Clear(cpu)
	set := func(to *unix.CPUSet) {
		threads, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			id, _ := strconv.Atoi(filepath.Base(thread))
			_ = unix.SchedSetaffinity(id, to) // one that ended meanwhile
		}
	}
	set(&others)
	return func() { set(&all) }
}

// TestPacedGenerator is the generator's process.
func TestPacedGenerator(t *testing.T) {
	var p paced
	if json.Unmarshal([]byte(os.Getenv(pacedEnv)), &p) != nil {
		t.Skip("it is run by TestBenchDoor")
	}
	if p.CPU >= 0 {
		var only unix.CPUSet
		only.Set(p.CPU)
		if err := unix.SchedSetaffinity(0, &only); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CA) {
		t.Fatal("no certificate to trust")
	}
	due := arrivals(p.Every, p.Total)
	const connections = 8
	var (
		next  atomic.Int64
		group sync.WaitGroup
		ready sync.WaitGroup
		mu    sync.Mutex
		took  []float64
		begin time.Time
	)
	ready.Add(connections)
	start := make(chan struct{})
	for range connections {
		group.Go(func() {
			runtime.LockOSThread()
			if p.CPU >= 0 {
				var only unix.CPUSet
				only.Set(p.CPU)
				_ = unix.SchedSetaffinity(0, &only)
			}
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
			c, err := p.dial(roots)
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			r := bufio.NewReader(c)
			<-start
			for i := next.Add(1) - 1; i < int64(p.Total); i = next.Add(1) - 1 {
				at := begin.Add(due[i])
				for left := time.Until(at); left > 0; left = time.Until(at) {
					ts := unix.NsecToTimespec(left.Nanoseconds())
					_ = unix.Nanosleep(&ts, nil)
				}
				if err := ask(c, r, p.Host, "/"); err != nil {
					t.Error(err)
					return
				}
				one := float64(time.Since(at).Nanoseconds()) / 1000
				mu.Lock()
				took = append(took, one)
				mu.Unlock()
			}
		})
	}
	ready.Wait()
	begin = time.Now()
	close(start)
	group.Wait()
	line, err := json.Marshal(took)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

// dial opens the way with a connection on which a thread waits itself.
func (p *paced) dial(roots *x509.CertPool) (net.Conn, error) {
	c, err := net.Dial(p.Network, p.Addr)
	if err != nil {
		return nil, err
	}
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	b := &blocking{c, int(f.Fd()), f}
	if p.Target != "" {
		if err := connect(b, p.Target); err != nil {
			return nil, err
		}
	}
	t := tls.Client(b, &tls.Config{ServerName: p.Host, RootCAs: roots})
	return t, t.Handshake()
}

// blocking reads and writes by system calls that wait.
type blocking struct {
	net.Conn
	fd int
	f  *os.File // keeps fd
}

func (b *blocking) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(b.fd, p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, net.ErrClosed
		default:
			return n, nil
		}
	}
}

func (b *blocking) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n, err := syscall.Write(b.fd, p[done:])
		if err != nil && err != syscall.EINTR {
			return done, err
		}
		done += max(n, 0)
	}
	return len(p), nil
}
