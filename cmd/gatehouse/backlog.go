package main

import (
	"fmt"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// mostBehind is how many records may wait for the streams when the
// configuration says nothing. A node whose streams are away goes on taking
// deliveries that far: what it took it also has to start one day.
const mostBehind = 100_000

// backlog says when the streams are so far behind the journal that no delivery
// is taken any more.
type backlog struct {
	journal *journal.Journal
	bus     *bus.Bus
	since   uint64 // last position of the start: before the first comparison the bus knows nothing
	most    uint64
}

func newBacklog(j *journal.Journal, b *bus.Bus, most int) *backlog {
	if most == 0 {
		most = mostBehind
	}
	return &backlog{journal: j, bus: b, since: j.Next() - 1, most: uint64(most)}
}

// behind is how many durable records are not on their streams yet.
func (b *backlog) behind() uint64 {
	stored, durable := max(b.bus.Status().Stored, b.since), b.journal.Next()-1
	if stored >= durable {
		return 0
	}
	return durable - stored
}

// err is problem.StreamsBehind when the bound is reached.
func (b *backlog) err() error {
	n := b.behind()
	if n < b.most {
		return nil
	}
	return problem.New(problem.StreamsBehind, fmt.Sprintf("%d records wait for the streams", n),
		"Bring NATS back: the node catches up by itself and takes deliveries again. nats.backlog is the bound.")
}
