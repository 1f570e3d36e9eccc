// Package linear verifies and normalizes Linear webhooks. It reads a request's
// headers and raw body and writes an event. It must never take the kind from the
// unsigned header, take a retry for a replay, read the ready-made promptContext,
// or start anything on a stop signal.
package linear
