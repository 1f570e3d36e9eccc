//go:build linux

package probe

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// bombs exhaust something and then hold on to it, for the cases in which the
// outside looks whether anybody else suffers. They print one line when they
// have what they can get. They are agents of the conformance suite and never
// part of a probe.
var bombs = map[string]func(){
	"processes":   processBomb,
	"memory":      memoryBomb,
	"descriptors": descriptorBomb,
	"hog":         hog,
}

// bomb runs one and does not return.
func bomb(kind string) int {
	f, ok := bombs[kind]
	if !ok {
		return exitUsage
	}
	f()
	for {
		time.Sleep(time.Hour)
	}
}

// processBomb is SB-36.
func processBomb() {
	n := 0
	for ; n < 1<<16; n++ {
		if err := child(nil, "sleep").Start(); err != nil {
			fmt.Printf("parked %d %s\n", n, name(err))
			return
		}
	}
	fmt.Printf("parked %d without end\n", n)
}

// memoryBomb is SB-37. Nothing inside survives it when memory is limited.
func memoryBomb() {
	const chunk = 16 << 20
	var held [][]byte
	for len(held) < 4<<30/chunk {
		b := make([]byte, chunk)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	fmt.Printf("parked %d bytes without end\n", len(held)*chunk)
	runtime.KeepAlive(held)
}

// descriptorBomb is SB-39: descriptors, and descriptors in flight in sockets
// that nobody reads, which count against the kernel's user, not the process.
func descriptorBomb() {
	null, err := os.Open(os.DevNull)
	if err != nil {
		fmt.Printf("parked nothing: %v\n", err)
		return
	}
	flight, inotify, open := 0, 0, 0
	for pair, err := pairOf(); err == nil && flight < 1<<16; pair, err = pairOf() {
		for unix.Sendmsg(pair, []byte{0}, unix.UnixRights(int(null.Fd())), nil, unix.MSG_DONTWAIT) == nil {
			flight++
		}
	}
	for ; inotify < 1<<12; inotify++ {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			break
		}
	}
	for ; open < 1<<20; open++ {
		if _, err := unix.Dup(int(null.Fd())); err != nil {
			break
		}
	}
	fmt.Printf("parked %d in flight, %d inotify, %d open\n", flight, inotify, open)
}

// pairOf returns one end of a socket pair whose other end stays open.
func pairOf() (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return fds[0], err
}

// hog is SB-40.
func hog() {
	for range 2 * runtime.NumCPU() {
		go func() {
			//lint:ignore SA5002 spinning is what the case is about
			for {
			}
		}()
	}
	fmt.Println("parked")
}
