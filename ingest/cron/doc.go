// Package cron makes events out of schedules. It reads the clock and the node's
// own journal, and writes event records to the journal. It is not a Source: the
// operator wrote all of an event. It must never run a slot twice, need a lock
// between replicas, or let an expression crash the node.
//
// A slot is a wall-clock time in the schedule's zone. A slot that the spring gap
// swallows runs at the first instant after the gap; one that the autumn repeats
// runs at its first occurrence only. The slot is the event's id and decides all
// of its bytes, so replicas may all fire: the stream keeps one.
package cron
