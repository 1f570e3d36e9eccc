package journal

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// backgroundSync has the kernel do fdatasync on a thread of its own (Linux native
// AIO) and says when it is done through an eventfd, on which a goroutine waits as
// it waits for a socket. A goroutine that waits inside fdatasync keeps a
// processor of the runtime until the runtime takes that away, and gets in line
// for one afterwards: for a journal that syncs all the time that is a processor
// lost (docs/adr/0006).
type backgroundSync struct {
	ctx  uintptr // aio_context_t
	done *os.File
	fd   int // of done
	cb   *iocb
}

// iocb is struct iocb of <linux/aio_abi.h>. Where key stands depends on the byte
// order; here it is zero.
type iocb struct {
	_      uint64 // aio_data
	_, _   uint32 // aio_key, aio_rw_flags
	opcode uint16
	_      int16 // aio_reqprio
	fd     uint32
	_, _   uint64 // aio_buf, aio_nbytes
	_      int64  // aio_offset
	_      uint64 // aio_reserved2
	flags  uint32
	resfd  uint32
}

// ioEvent is struct io_event of the same file.
type ioEvent struct {
	_, _ uint64 // data, obj
	res  int64
	_    int64 // res2
}

const (
	iocbFdsync    = 3 // IOCB_CMD_FDSYNC, since Linux 4.18
	iocbFlagResfd = 1 // IOCB_FLAG_RESFD
)

var errNoAIO = errors.New("the kernel does not sync in the background")

// idleSyncs are kept for the next file: the kernel takes some 30 ms to give one up,
// and a segment begins while others wait.
var idleSyncs = make(chan *backgroundSync, 2)

// newBackgroundSync returns errNoAIO where there is no AIO or none is left: the
// caller then waits inside fdatasync, which is as durable.
func newBackgroundSync() (*backgroundSync, error) {
	select {
	case s := <-idleSyncs:
		return s, nil
	default:
	}
	s := &backgroundSync{cb: new(iocb)}
	if _, _, e := syscall.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&s.ctx)), 0); e != 0 {
		return nil, errNoAIO
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		s.close()
		return nil, errNoAIO
	}
	s.fd, s.done = fd, os.NewFile(uintptr(fd), "journal sync")
	return s, nil
}

// sync returns errNoAIO if the kernel did not take the request; any other error is
// that of the sync.
func (s *backgroundSync) sync(fd int) error {
	*s.cb = iocb{opcode: iocbFdsync, fd: uint32(fd), flags: iocbFlagResfd, resfd: uint32(s.fd)}
	list := [1]*iocb{s.cb}
	if n, _, e := syscall.Syscall(unix.SYS_IO_SUBMIT, s.ctx, 1, uintptr(unsafe.Pointer(&list))); e != 0 || n != 1 {
		return errNoAIO
	}
	var count [8]byte
	if _, err := s.done.Read(count[:]); err != nil {
		return err
	}
	var ev ioEvent
	for {
		n, _, e := syscall.Syscall6(unix.SYS_IO_GETEVENTS, s.ctx, 1, 1, uintptr(unsafe.Pointer(&ev)), 0, 0)
		switch {
		case e == syscall.EINTR:
		case e != 0:
			return e
		case n != 1:
			return errors.New("a sync without its result")
		case ev.res < 0:
			return syscall.Errno(-ev.res)
		default:
			return nil
		}
	}
}

// release keeps s for another file. The last sync must have had its result.
func (s *backgroundSync) release() {
	select {
	case idleSyncs <- s:
	default:
		s.close()
	}
}

// close gives the kernel's part back.
func (s *backgroundSync) close() {
	_, _, _ = syscall.Syscall(unix.SYS_IO_DESTROY, s.ctx, 0, 0)
	if s.done != nil {
		_ = s.done.Close()
	}
}
