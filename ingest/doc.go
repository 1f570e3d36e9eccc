// Package ingest turns inbound webhooks into events: it reads POST
// /hooks/{endpoint} and writes event records to the node's journal, and large
// payloads to the blob store before the record that names them.
//
// It must never parse a byte before its signature was checked, never answer 200
// for what is not durable, never let a sender's string name anything, and never
// raise the origin of a value: a signature proves the platform, not the author.
//
// The order of one request: limits, signature over the raw bytes, rate of
// verified deliveries, structure, dedupe, normalization with provenance, journal,
// answer. A source (packages below this one) knows one vendor; the package knows
// none.
package ingest
