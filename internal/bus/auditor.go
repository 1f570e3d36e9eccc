package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"gatehouse/internal/problem"
)

// Auditor is somebody outside who may read receipts and nothing else. Reading
// goes through pull consumers that are made for them, because whoever may create
// consumers, or may use one inside the node's own account, can make the server
// write to any subject: the reply of a pull request is delivered unchecked there.
// Auditors therefore live in an account of their own, which imports nothing but
// the two requests of deploy/nats/nats.conf.
type Auditor struct {
	Name    string // one subject token, at most 32 bytes
	Session string // one session
	Bundle  string // the sessions of one bundle; with neither all, and the control chains
}

// AuditorAPI is the JetStream API prefix in the auditors' account: --js-api-prefix
// of the nats CLI, jetstream.NewWithAPIPrefix in Go.
const AuditorAPI = "GATEHOUSE.API"

const (
	auditorPrefix = "auditor_"
	auditorLabel  = "gatehouse_auditor"
)

// auditorStreams are what auditors read, never events and actions.
var auditorStreams = []string{Sessions, Audit, Log}

// streams are those that the auditor reads.
func (a Auditor) streams() []string {
	if a.Bundle != "" {
		return []string{Audit, Log}
	}
	return []string{Sessions, Log}
}

func (a Auditor) check() error {
	if !validTokens(a.Name, 1) || len(a.Name) > 32 || a.Session != "" && !validTokens(a.Session, 1) || a.Bundle != "" && !validTokens(a.Bundle, 1) {
		return problem.New(problem.Usage, "an auditor's name, session and bundle are letters, digits, - and _", "")
	}
	if a.Session != "" && a.Bundle != "" {
		return problem.New(problem.Usage, "an auditor reads one session or those of one bundle", "Leave --session or --bundle out.")
	}
	return nil
}

// Stream is the one that holds the receipts that the auditor reads.
func (a Auditor) Stream() string { return a.streams()[0] }

// filter is what the auditor reads of a stream.
func (a Auditor) filter(stream string) string {
	switch {
	case stream == Audit:
		return auditPrefix + a.Bundle + ".*.*"
	case a.Session == "" && a.Bundle == "":
		return ""
	case stream == Sessions:
		return sessionsPrefix + a.Session
	}
	return logPrefix + "*" // checkpoints and seals, no control chain
}

// inbox is where the auditor's client listens: --inbox-prefix of the nats CLI,
// nats.CustomInboxPrefix in Go.
func (a Auditor) inbox() string { return "_INBOX_" + a.Name }

// publish lists the only subjects that the auditor may publish to.
func (a Auditor) publish() (out []string) {
	for _, s := range a.streams() {
		for _, verb := range []string{"INFO", "MSG.NEXT"} {
			out = append(out, AuditorAPI+".CONSUMER."+verb+"."+s+"."+auditorPrefix+a.Name)
		}
	}
	return out
}

// AddAuditor makes the auditor's consumers. An auditor of that name is
// problem.Conflict.
func (b *Bus) AddAuditor(ctx context.Context, a Auditor) error {
	if err := a.check(); err != nil {
		return err
	}
	if b.srv != nil {
		return problem.New(problem.Usage, "the embedded NATS server has no listener for auditors", "Set nats.url, or let auditors read GET /v1/receipts/stream.")
	}
	// Names are taken once, whatever they may read.
	all, err := b.Auditors(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(have Auditor) bool { return have.Name == a.Name }) {
		return problem.New(problem.Conflict, "there is an auditor "+a.Name, "Remove it first, or take another name.")
	}
	if a.Bundle != "" {
		if err := b.room(ctx, a.Bundle); err != nil {
			return err
		}
	}
	for _, s := range a.streams() {
		rctx, cancel := request(ctx)
		_, err := b.js.CreateConsumer(rctx, s, jetstream.ConsumerConfig{
			Durable: auditorPrefix + a.Name, Description: "an auditor's", Metadata: map[string]string{auditorLabel: a.Name, "session": a.Session, "bundle": a.Bundle},
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy, FilterSubject: a.filter(s), MaxWaiting: 16,
		})
		cancel()
		switch {
		case errors.Is(err, jetstream.ErrConsumerExists):
			return problem.Wrap(err, problem.Conflict, "there is an auditor "+a.Name, "Remove it first, or take another name.")
		case err != nil:
			return fmt.Errorf("couldn't make the auditor's consumer: %w", err)
		}
	}
	return nil
}

// RemoveAuditor deletes the consumers: the credentials then open nothing.
func (b *Bus) RemoveAuditor(ctx context.Context, name string) error {
	if err := (Auditor{Name: name}).check(); err != nil {
		return err
	}
	found := false
	for _, s := range auditorStreams {
		rctx, cancel := request(ctx)
		err := b.js.DeleteConsumer(rctx, s, auditorPrefix+name)
		cancel()
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
		case err != nil:
			return fmt.Errorf("couldn't remove the auditor: %w", err)
		default:
			found = true
		}
	}
	if !found {
		return problem.New(problem.NotFound, "there is no auditor "+name, "auditor list shows them")
	}
	return nil
}

// Auditors lists who may read, by name.
func (b *Bus) Auditors(ctx context.Context) ([]Auditor, error) {
	out := []Auditor{}
	for _, s := range []string{Sessions, Audit} {
		some, err := b.auditorsOf(ctx, s)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	slices.SortFunc(out, func(a, b Auditor) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// auditorsOf lists who reads a stream.
func (b *Bus) auditorsOf(ctx context.Context, stream string) (out []Auditor, err error) {
	rctx, cancel := request(ctx)
	defer cancel()
	s, err := b.js.Stream(rctx, stream)
	if err != nil {
		return nil, fmt.Errorf("couldn't list the auditors: %w", err)
	}
	list := s.ListConsumers(rctx)
	for c := range list.Info() {
		if name := c.Config.Metadata[auditorLabel]; name != "" && strings.HasPrefix(c.Name, auditorPrefix) {
			out = append(out, Auditor{Name: name, Session: c.Config.Metadata["session"], Bundle: c.Config.Metadata["bundle"]})
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("couldn't list the auditors: %w", err)
	}
	return out, nil
}

// Credentials are a new auditor's: the private part goes to the auditor and is
// kept nowhere else.
type Credentials struct {
	Public string // user nkey
	File   []byte // seed, or creds file: mode 0600
	User   string // block of an auditors' account in a server's configuration; "" for a creds file
}

// NewCredentials makes a user that may pull from the auditor's consumers. With
// the seed of the auditors' account it is a creds file, signed and good until
// expires (zero = for ever); without one it is an nkey seed and the block that
// the server's configuration needs.
func (a Auditor) NewCredentials(accountSeed []byte, expires time.Time) (*Credentials, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("couldn't make a user: %w", err)
	}
	defer user.Wipe()
	seed, err := user.Seed()
	if err != nil {
		return nil, fmt.Errorf("couldn't make a user: %w", err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("couldn't make a user: %w", err)
	}
	if accountSeed == nil {
		return &Credentials{Public: public, File: append(seed, '\n'), User: fmt.Sprintf(
			"{nkey: %s, permissions: {publish: {allow: [\"%s\"]}, subscribe: {allow: [\"%s.>\"]}}}  # auditor %s",
			public, strings.Join(a.publish(), `", "`), a.inbox(), a.Name)}, nil
	}
	account, err := nkeys.FromSeed(accountSeed)
	if err != nil {
		return nil, problem.New(problem.Usage, "the account seed cannot be used", "It must be the seed (SA...) of the auditors' account or one of its signing keys.")
	}
	defer account.Wipe()
	claims := jwt.NewUserClaims(public)
	claims.Name = auditorPrefix + a.Name
	claims.Pub.Allow.Add(a.publish()...)
	claims.Sub.Allow.Add(a.inbox() + ".>")
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	token, err := claims.Encode(account)
	if err != nil {
		return nil, problem.New(problem.Usage, "the account seed cannot sign a user", "It must be the seed (SA...) of the auditors' account or one of its signing keys.")
	}
	file, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		return nil, fmt.Errorf("couldn't write a creds file: %w", err)
	}
	return &Credentials{Public: public, File: file}, nil
}
