package bus

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"gatehouse/internal/problem"
)

// embed starts a server inside this process. Every option is set before
// Start: a stream whose server gets JetStream afterwards may lose its leader
// for good.
func embed(o Options) (*server.Server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't make the JetStream folder: %w", err)
	}
	// An older folder may be wider; the server itself writes 0640 files.
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't close the JetStream folder to others: %w", err)
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: o.Node,
		DontListen: true, // no port: the only client is this process
		NoSigs:     true,
		MaxPayload: MaxMessage + 64<<10, // headers count too
		JetStream:  true,
		StoreDir:   o.Dir,
		// The journal is what survives a power cut; this bounds how much has to
		// be published again.
		SyncInterval:       10 * time.Second,
		JetStreamMaxMemory: 256 << 20,
		// The disk is the bound. Left to itself the server takes three quarters of
		// what is free when it starts, and keeps to that when space comes back.
		JetStreamMaxStore: 1 << 50,
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't configure the embedded NATS server: %w", err)
	}
	srv.SetLoggerV2(serverLog{o.Log.With(slog.String("part", "nats-server"))}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, problem.New(problem.Unavailable, "the embedded NATS server did not become ready", "Read its log lines above; the state folder may be damaged or full.")
	}
	return srv, nil
}

// serverLog passes the server's lines on. Its notices are start-up chatter.
type serverLog struct{ l *slog.Logger }

func (s serverLog) log(level slog.Level, format string, v []any) {
	if s.l.Enabled(context.Background(), level) {
		s.l.Log(context.Background(), level, fmt.Sprintf(format, v...))
	}
}

func (s serverLog) Noticef(f string, v ...any) { s.log(slog.LevelDebug, f, v) }
func (s serverLog) Warnf(f string, v ...any)   { s.log(slog.LevelWarn, f, v) }
func (s serverLog) Fatalf(f string, v ...any)  { s.log(slog.LevelError, f, v) }
func (s serverLog) Errorf(f string, v ...any)  { s.log(slog.LevelError, f, v) }
func (s serverLog) Debugf(f string, v ...any)  { s.log(slog.LevelDebug, f, v) }
func (s serverLog) Tracef(f string, v ...any)  { s.log(slog.LevelDebug, f, v) }
