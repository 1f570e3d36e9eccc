package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/problem"
)

// Options says which NATS to use. Exactly one of Dir and URL is set.
type Options struct {
	Node string // this node's name, one subject token

	Dir string // embedded: folder of the JetStream store, made 0700

	URL   string // external: one or more server URLs, comma separated
	Creds string // external: .creds or nkey seed file, readable by this user only; "" for none

	Replicas   int           // copies of each stream, 0 = 1
	Duplicates time.Duration // message id window of the streams, 0 = 2 min; only the last net
	AckTimeout time.Duration // how long a publish waits before its fate is read back, 0 = 5 s
	Log        *slog.Logger  // nil = slog.Default()
}

// Bus is a connection to the streams. It is safe for concurrent use.
type Bus struct {
	o     Options
	nc    *nats.Conn
	js    jetstream.JetStream
	srv   *inProcess // nil when external
	state atomic.Pointer[Status]

	pub     jetstream.JetStream // the pump's publisher
	answers chan answer         // what it hears
	pumping atomic.Bool
}

// Open starts or reaches the server and creates the streams and buckets that
// do not exist yet. Close releases everything.
func Open(ctx context.Context, o Options) (*Bus, error) {
	if (o.Dir == "") == (o.URL == "") {
		return nil, errors.New("bus: exactly one of Dir and URL must be set")
	}
	if !validTokens(o.Node, 1) {
		return nil, problem.New(problem.ConfigInvalid, fmt.Sprintf("node name %q is not one subject token", o.Node), "Use letters, digits, - and _.")
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Duplicates == 0 {
		o.Duplicates = 2 * time.Minute
	}
	if o.AckTimeout == 0 {
		o.AckTimeout = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	b := &Bus{o: o}
	b.state.Store(&Status{Phase: Idle})
	if err := b.connect(); err != nil {
		_ = b.Close()
		return nil, err
	}
	var err error
	if b.js, err = jetstream.New(b.nc); err == nil {
		err = b.publisher()
	}
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("couldn't set up JetStream: %w", err)
	}
	if err := b.ensure(ctx); err != nil {
		_ = b.Close()
		return nil, problem.Wrap(err, problem.Unavailable, "couldn't set up the NATS streams",
			"Create them with an administrator's credentials, or let this user create streams.")
	}
	return b, nil
}

func (b *Bus) connect() error {
	opts := []nats.Option{
		nats.Name("gatehouse/" + b.o.Node),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.o.Log.Warn("nats disconnected", slog.Any("err", err))
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { b.o.Log.Info("nats connected again") }),
		// A refused permission arrives here and nowhere else; the call it
		// belongs to only times out.
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.o.Log.Warn("nats reported an error", slog.Any("err", err))
		}),
	}
	url := b.o.URL
	if b.o.Dir != "" {
		srv, err := embed(b.o)
		if err != nil {
			return err
		}
		b.srv = &inProcess{srv: srv}
		url, opts = "", append(opts, nats.InProcessServer(b.srv))
	}
	if b.o.Creds != "" {
		auth, err := credentials(b.o.Creds)
		if err != nil {
			return err
		}
		opts = append(opts, auth)
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return problem.Wrap(err, problem.Unreachable, "couldn't reach NATS", "Check nats.url and nats.creds, and that the server runs.")
	}
	b.nc = nc
	return nil
}

// credentials reads either form of a user's key file. The key itself is read
// again by the client when it connects, and kept nowhere.
func credentials(path string) (nats.Option, error) {
	invalid := func(err error) error {
		return problem.Wrap(err, problem.ConfigInvalid, "nats.creds cannot be used", "It must be a .creds or nkey seed file with mode 0600.")
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, invalid(err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, invalid(fmt.Errorf("%s is open to others (%v)", path, st.Mode().Perm()))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, invalid(err)
	}
	defer clear(b)
	if bytes.Contains(b, []byte("-----BEGIN NATS USER JWT-----")) {
		return nats.UserCredentials(path), nil
	}
	opt, err := nats.NkeyOptionFromSeed(path)
	if err != nil {
		return nil, invalid(err)
	}
	return opt, nil
}

// requestTimeout bounds one question to the server. A question that went out
// on a connection that then broke is never answered.
const requestTimeout = 5 * time.Second

func request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// Close ends the connection and, when embedded, the server. Pump, Follow and
// Work must have ended before.
func (b *Bus) Close() error {
	if b.nc != nil {
		b.nc.Close()
	}
	if b.srv != nil {
		b.srv.stop()
	}
	return nil
}

// Phase is what the pump does.
type Phase string

// Phases.
const (
	Idle        Phase = "idle"        // no pump runs
	Reconciling Phase = "reconciling" // comparing the streams with the journal
	Pumping     Phase = "pumping"     // carrying groups to the streams
	Stopped     Phase = "stopped"     // fenced or damaged, see Err
)

// Status is the bus as readiness and status pages show it.
type Status struct {
	Connected bool
	Embedded  bool
	Phase     Phase
	Stored    uint64 // journal position up to which every record is on its stream
	Err       error  // why the pump stopped, nil otherwise
	Waits     error  // what the pump waits for before it goes on by itself, nil otherwise
}

// Status returns the present state.
func (b *Bus) Status() Status {
	s := *b.state.Load()
	s.Connected, s.Embedded = b.nc.IsConnected(), b.srv != nil
	return s
}
