package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"gatehouse/internal/problem"
)

// inProcess is the embedded server as the client connects to it. Another server
// may take its place while the client is away.
type inProcess struct {
	mu  sync.Mutex
	srv *server.Server
}

func (p *inProcess) now() *server.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.srv
}

// InProcessConn gives the client a connection to the server of the moment.
func (p *inProcess) InProcessConn() (net.Conn, error) { return p.now().InProcessConn() }

// Addr is the client address that the server listens on: none.
func (p *inProcess) Addr() net.Addr { return p.now().Addr() }

func (p *inProcess) stop() {
	srv := p.now()
	srv.Shutdown()
	srv.WaitForShutdown()
}

// errStore says that the embedded server does not answer publishes. After a
// failed write a JetStream stream refuses every record without a word until it
// is opened anew, also when the disk has space again (tried with ENOSPC).
var errStore = errors.New("the embedded NATS store takes no records")

// errSpace is what revive waits for. The journal takes its own space first, so
// its disk, when it is the same, may do while the store's does not.
var errSpace = problem.New(problem.StreamsFull, "the disk of the NATS store is full: records wait in the journal",
	"Free more disk space; the store goes on by itself, and nothing is lost.")

const (
	storeTries  = 3               // unanswered publishes of one record, AckTimeout each
	reviveSpace = 1 << 20         // free bytes without which the server cannot even start
	revivePause = time.Second     // between looks at the disk
	reviveRetry = 5 * time.Second // after a server that did not start
)

// revive starts the embedded server anew once its disk has space. Deliveries go
// into the journal meanwhile.
func (b *Bus) revive(ctx context.Context) error {
	b.o.Log.WarnContext(ctx, "the embedded NATS store takes no records; it is started again when its disk has space", slog.String("dir", b.o.Dir))
	b.update(func(s *Status) { s.Phase, s.Waits = Reconciling, errSpace })
	for {
		var fs unix.Statfs_t
		for {
			err := unix.Statfs(b.o.Dir, &fs)
			if err != nil {
				return fmt.Errorf("couldn't look at the disk of the NATS store: %w", err)
			}
			if int64(fs.Bavail)*fs.Bsize >= reviveSpace { //nolint:unconvert // Bavail and Bsize differ by platform
				break
			}
			if pause(ctx, revivePause); ctx.Err() != nil {
				return ctx.Err()
			}
		}
		b.srv.stop()
		srv, err := embed(b.o)
		if err == nil {
			b.srv.mu.Lock()
			b.srv.srv = srv
			b.srv.mu.Unlock()
			b.o.Log.InfoContext(ctx, "the embedded NATS store runs again")
			return nil
		}
		b.o.Log.WarnContext(ctx, "the embedded NATS server does not start yet", slog.Any("err", err))
		if pause(ctx, reviveRetry); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
