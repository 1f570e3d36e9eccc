package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Streams, DESIGN.md section 4.
const (
	Events   = "GATEHOUSE_EVENTS"   // gatehouse.v1.events.<source>.<endpoint>.<kind>.<action>.<hash>
	Sessions = "GATEHOUSE_SESSIONS" // gatehouse.v1.sessions.<session>
	Log      = "GATEHOUSE_LOG"      // gatehouse.v1.log.<node>, gatehouse.v1.control.<node>
	Actions  = "GATEHOUSE_ACTIONS"  // gatehouse.v1.actions.<leaf hash>
)

// Buckets.
const (
	Claims  = "gatehouse_claims"  // event hash -> node and session that admits it
	Bundles = "gatehouse_bundles" // bundle name -> desired bytes, digest, modes
)

// MaxMessage is the largest message the streams take, in bytes. Event bodies
// over 512 KiB live in blobs, so an event record stays well below it.
const MaxMessage = 4 << 20

const (
	eventsPrefix   = "gatehouse.v1.events."
	sessionsPrefix = "gatehouse.v1.sessions."
	logPrefix      = "gatehouse.v1.log."
	controlPrefix  = "gatehouse.v1.control."
	actionsPrefix  = "gatehouse.v1.actions."
	bucketPrefix   = "KV_"
)

// declared returns the streams as they should be. Everything that a server
// could use to drop or change a stored record is off; what is left out is the
// server's default.
func declared(o Options) []jetstream.StreamConfig {
	record := func(name, about string, subjects ...string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Description: about, Subjects: subjects,
			Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: o.Replicas,
			// A full stream refuses the next record instead of evicting the first.
			Discard: jetstream.DiscardNew,
			MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1,
			MaxMsgSize: MaxMessage, Duplicates: o.Duplicates,
			DenyDelete: true, DenyPurge: true,
		}
	}
	events := record(Events, "verified deliveries, one write-once subject each", eventsPrefix+">")
	// A message id stops copies only inside its window; one message per subject
	// and discard-new stop them for ever.
	events.MaxMsgsPerSubject, events.DiscardNewPerSubject = 1, true

	actions := record(Actions, "canonical actions for reviewers and replay", actionsPrefix+"*")
	actions.MaxMsgsPerSubject, actions.DiscardNewPerSubject = 1, true
	actions.MaxAge = 30 * 24 * time.Hour
	actions.DenyDelete, actions.DenyPurge = false, false

	copies := record(Audit, "copies for the auditors of one bundle", auditPrefix+"*.*.*")
	copies.MaxAge = 90 * 24 * time.Hour

	return []jetstream.StreamConfig{
		events,
		record(Sessions, "receipt chains, one subject a session", sessionsPrefix+"*"),
		record(Log, "seals and checkpoints; control chains", logPrefix+"*", controlPrefix+"*"),
		actions,
		copies,
		bucket(o, Claims, "who admits which event"),
		bucket(o, Bundles, "desired bundles and modes"),
	}
}

// bucket is the stream behind a key-value bucket of one revision a key, as
// nats.go makes it.
func bucket(o Options, name, about string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: bucketPrefix + name, Description: about, Subjects: []string{"$KV." + name + ".>"},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: o.Replicas,
		Discard: jetstream.DiscardNew, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: 1, MaxMsgSize: -1, MaxConsumers: -1,
		Duplicates: 2 * time.Minute, DenyDelete: true, AllowRollup: true, AllowDirect: true,
	}
}

// streamOf returns the stream that stores subject, "" if none does, and
// whether a subject of that stream is written once.
func streamOf(subject string) (stream string, once bool) {
	rest, ok := strings.CutPrefix(subject, eventsPrefix)
	if ok && validTokens(rest, 5) {
		return Events, true
	}
	for _, p := range []struct{ prefix, stream string }{
		{sessionsPrefix, Sessions}, {logPrefix, Log}, {controlPrefix, Log},
	} {
		if rest, ok := strings.CutPrefix(subject, p.prefix); ok && validTokens(rest, 1) {
			return p.stream, false
		}
	}
	return "", false
}

// validTokens reports whether s is exactly n subject tokens of the closed
// alphabet. IN-21: no byte that NATS treats as structure passes.
func validTokens(s string, n int) bool {
	if len(s) > 255 || strings.Count(s, ".") != n-1 {
		return false
	}
	for t := range strings.SplitSeq(s, ".") {
		if t == "" || strings.IndexFunc(t, func(r rune) bool { return !tokenRune(r) }) >= 0 {
			return false
		}
	}
	return true
}

func tokenRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// ensure creates what is missing. It never updates what exists: a lowered
// limit evicts stored records at once, so a difference is shown (Drift), not
// mended in passing.
func (b *Bus) ensure(ctx context.Context) error {
	// A question that this user may not ask is never answered.
	ask := func(f func(ctx context.Context) error) error {
		ctx, cancel := request(ctx)
		defer cancel()
		return f(ctx)
	}
	for _, want := range declared(b.o) {
		err := ask(func(ctx context.Context) error { _, err := b.js.Stream(ctx, want.Name); return err })
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = ask(func(ctx context.Context) error { _, err := b.js.CreateStream(ctx, want); return err })
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", want.Name, err)
		}
	}
	return nil
}

// Difference is one way in which a stream is not as declared.
type Difference struct {
	Stream string // "" for the server
	Field  string
	Want   string
	Have   string
	Loses  bool // the server may drop, replace or rewrite stored records
}

// String returns one line for doctor.
func (d Difference) String() string {
	where := d.Stream
	if where == "" {
		where = "server"
	}
	return fmt.Sprintf("%s: %s is %s, want %s", where, d.Field, d.Have, d.Want)
}

// Drift compares the streams with their declaration. An empty result means
// that they agree.
func (b *Bus) Drift(ctx context.Context) ([]Difference, error) {
	var out []Difference
	for _, want := range declared(b.o) {
		s, err := b.js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			out = append(out, absent(want.Name))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", want.Name, err)
		}
		out = append(out, compare(want, s.CachedInfo().Config)...)
	}
	if have := b.nc.MaxPayload(); have < MaxMessage {
		out = append(out, Difference{Field: "max_payload", Want: fmt.Sprint(MaxMessage), Have: fmt.Sprint(have)})
	}
	return out, nil
}

func absent(stream string) Difference {
	return Difference{Stream: stream, Field: "stream", Want: "present", Have: "absent", Loses: true}
}

// compare walks the two configurations field by field, so that a setting a
// later server adds is compared too without anybody remembering it.
func compare(want, have jetstream.StreamConfig) []Difference {
	var out []Difference
	w, h := reflect.ValueOf(want), reflect.ValueOf(have)
	for i := range w.NumField() {
		field := w.Type().Field(i).Name
		if slices.Contains(ignored, field) || reflect.DeepEqual(w.Field(i).Interface(), h.Field(i).Interface()) {
			continue
		}
		out = append(out, Difference{
			Stream: want.Name, Field: field,
			Want: show(w.Field(i)), Have: show(h.Field(i)),
			Loses: !slices.Contains(harmless, field),
		})
	}
	return out
}

func show(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "none"
	}
	return fmt.Sprintf("%v", v.Interface())
}

var (
	// Fields that say nothing about the records.
	ignored = []string{"Name", "Description", "Metadata", "Placement", "Template", "ConsumerLimits"}
	// Fields whose change cannot lose or alter a stored record.
	harmless = []string{"MaxConsumers", "MaxMsgSize", "Replicas", "Duplicates", "Compression", "FirstSeq", "AllowDirect", "MirrorDirect", "AllowAtomicPublish", "AllowBatchPublish"}
)
