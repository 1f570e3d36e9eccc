// Package telemetry relays what programs in a sandbox report about themselves:
// OTLP over HTTP (traces, metrics, logs; protobuf and JSON), Langfuse's
// ingestion, Sentry envelopes. It reads requests to a telemetry connection, by
// the connection's base URL on the door or by its own host; asks the gate; and
// sends permitted ones to the connection's one destination.
//
// It must never read anything back from there, send anywhere else, hold a
// credential, pass on a part of a message that it does not know, or let a
// program inside say whose session it is: ids are overwritten here.
//
// # What passes
//
// Write paths, each with its own content types. A message is read whole,
// unpacked within bounds, taken apart, rewritten and packed again, so that what
// leaves is what was understood. Attachments, replays and profiles are taken
// out, each time with a receipt.
//
// # Failures
//
// A sink that fails or hangs costs the agent at most Options.Patience, and then
// nothing for a while: the answer is the same minimal success, the outcome
// receipt names the failure and Seen counts it. Only a refusal is answered as
// one.
package telemetry
