package main

import (
	"bytes"
	"context"
	"time"

	"gatehouse/internal/diag"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// counting turns durable receipts into metrics. It reads the journal behind its
// end, so that no decision waits for it and what it counts has happened.
type counting struct {
	m    *diag.Metrics
	open map[string]begun // admitted sessions of this process
}

type begun struct {
	provider string
	at       time.Time
}

// count follows the journal from a position until ctx ends or the journal is
// closed. A journal that cannot be read any more is the node's end elsewhere.
func count(ctx context.Context, j *journal.Journal, from uint64, m *diag.Metrics) {
	c := &counting{m: m, open: map[string]begun{}}
	for group, err := range j.Follow(ctx, from) {
		if err != nil {
			return
		}
		for _, rec := range group {
			if rec.Kind == journal.KindReceipt {
				c.receipt(rec.Data)
			}
		}
	}
}

// typeKey begins a receipt's type; inside a text its quotes would be escaped.
var typeKey = []byte(`"type":"`)

// receipt counts one. Only the types that say more than themselves are decoded.
func (c *counting) receipt(data []byte) {
	_, rest, ok := bytes.Cut(data, typeKey)
	name, _, end := bytes.Cut(rest, []byte{'"'})
	if !ok || !end {
		return
	}
	switch t := receipts.Type(name); t {
	case receipts.TypeDecision, receipts.TypeSessionOpen, receipts.TypeSessionClose:
		r, err := receipts.Decode(data)
		if err != nil {
			c.m.VerifyFailures.Inc()
			return
		}
		c.m.Receipts.WithLabelValues(string(r.Type)).Inc()
		c.detail(r)
	default:
		c.m.Receipts.WithLabelValues(string(t)).Inc()
	}
}

func (c *counting) detail(r *receipts.Receipt) {
	switch r.Type {
	case receipts.TypeDecision:
		d := r.Dec
		c.m.Verdicts.WithLabelValues(d.By, string(d.Mode), string(d.Verdict), d.Reason).Add(float64(max(d.Count, 1)))
		c.m.VerdictSeconds.WithLabelValues(d.By).Observe(float64(d.Dur) / 1e6)
		if d.Fault != "" {
			c.m.Faults.WithLabelValues(d.By, d.Fault).Inc()
		}
	case receipts.TypeSessionOpen:
		c.m.Admissions.WithLabelValues(r.Open.Bundle, r.Open.State, r.Open.Code).Inc()
		if r.Open.State == "admitted" {
			c.open[r.Session] = begun{r.Open.Provider, r.T}
			c.m.SessionsActive.WithLabelValues(r.Open.Provider).Inc()
		}
	case receipts.TypeSessionClose:
		// Of an earlier process: lost at this start, and not counted as running.
		s, ok := c.open[r.Session]
		if !ok {
			return
		}
		delete(c.open, r.Session)
		c.m.SessionsActive.WithLabelValues(s.provider).Dec()
		c.m.SessionSeconds.WithLabelValues(r.Close.Reason).Observe(r.T.Sub(s.at).Seconds())
	}
}

// gauges are read at each scrape.
func gauges(m *diag.Metrics, health *diag.Health, b *backlog, n *notary.Notary, ks *receipts.Keyset) {
	m.Gauge("ready", "1 when the node is ready, as /readyz says.", func() float64 {
		if len(health.Reasons()) > 0 {
			return 0
		}
		return 1
	})
	m.Gauge("streams_backlog_records", "Durable records that are not on their streams yet.", func() float64 { return float64(b.behind()) })
	m.Gauge("checkpoint_timestamp_seconds", "Time of the newest checkpoint of this node's log; 0 before the first.", func() float64 {
		c, err := receipts.ParseCheckpoint(n.Head(), ks)
		if err != nil {
			return 0
		}
		return float64(c.Time.Unix())
	})
}
