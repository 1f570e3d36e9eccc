package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/problem"
)

// Audit holds copies of the receipts of bundles that have an auditor of their
// own, one subject a session under its bundle and node. A session's own subject
// names no bundle, and a consumer whose filter grew with each session would leave
// out what was stored before the filter knew it (the server has read past it),
// and would be written by several nodes at once. Copies are evidence like the
// original: the same bytes and seal. Deleting the stream changes no receipt.
const Audit = "GATEHOUSE_AUDIT" // gatehouse.v1.audit.<bundle>.<node>.<session>

const (
	auditPrefix = "gatehouse.v1.audit."
	copyPos     = "Gatehouse-Position" // of the journal that the copy was made from

	// MaxAudited is how many bundles may have auditors: each is one reader of the
	// journal on every node.
	MaxAudited = 16
)

// auditSubject is where the copy of a message of a session goes.
func (b *Bus) auditSubject(bundle, session string) (string, error) {
	if s := auditPrefix + bundle + "." + b.o.Node + "." + session; validTokens(bundle, 1) && validTokens(session, 1) {
		return s, nil
	}
	return "", fmt.Errorf("bus: %q or %q is not a subject token", bundle, session)
}

// Audited lists the bundles that auditors read, by name.
func (b *Bus) Audited(ctx context.Context) ([]string, error) {
	all, err := b.auditorsOf(ctx, Audit)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range all {
		out = append(out, a.Bundle)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// PutCopy copies one message of a session of bundle, which stands at pos of this
// node's journal, and waits until it is stored. After an error it may or may not
// be: LastCopy says. One caller at a time for each bundle, in journal order.
func (b *Bus) PutCopy(ctx context.Context, bundle, session string, pos uint64, m Msg) error {
	subject, err := b.auditSubject(bundle, session)
	if err != nil {
		return err
	}
	out := nats.NewMsg(subject)
	out.Data = m.Data
	for k, v := range m.Header {
		out.Header.Set(k, v)
	}
	out.Header.Set(copyPos, strconv.FormatUint(pos, 10))
	ctx, cancel := request(ctx)
	defer cancel()
	if _, err := b.js.PublishMsg(ctx, out, jetstream.WithExpectStream(Audit)); err != nil {
		return fmt.Errorf("couldn't copy a receipt for the auditors of %s: %w", bundle, err)
	}
	return nil
}

// LastCopy returns the newest copy that this node made of a session of bundle,
// "*" for all of them, and its position; ErrNotFound when there is none.
func (b *Bus) LastCopy(ctx context.Context, bundle, session string) (m Msg, pos uint64, err error) {
	subject := auditPrefix + bundle + "." + b.o.Node + ".*"
	if session != "*" {
		if subject, err = b.auditSubject(bundle, session); err != nil {
			return Msg{}, 0, err
		}
	}
	m, seq, err := b.head(ctx, Audit, subject)
	if err == nil && seq == 0 {
		err = fmt.Errorf("copies of %s: %w", bundle, ErrNotFound)
	}
	if err != nil {
		return Msg{}, 0, err
	}
	if pos, err = strconv.ParseUint(m.Header[copyPos], 10, 64); err != nil {
		return Msg{}, 0, errors.New("bus: a copy names no position: somebody else wrote to " + Audit)
	}
	return m, pos, nil
}

// room refuses one bundle too many.
func (b *Bus) room(ctx context.Context, bundle string) error {
	have, err := b.Audited(ctx)
	if err != nil {
		return err
	}
	if len(have) >= MaxAudited && !slices.Contains(have, bundle) {
		return problem.New(problem.AuditFull, fmt.Sprintf("%d bundles have auditors, and that is the most", MaxAudited), "Remove the auditors of a bundle first, or give this one all sessions or one.")
	}
	return nil
}
