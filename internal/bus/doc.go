// Package bus carries durable records to NATS JetStream and back. It reads
// groups from the node journal and writes them to the streams
// gatehouse.v1.events, sessions, log and control; it hands stream messages to
// consumers, and keeps the claim and bundle buckets. It must never decide, and
// must never take what a stream holds as truth: the journal is, and a stream
// that differs from it is reported, not adopted.
//
// It is the only package that imports NATS. The server runs inside this
// process without a listener, or elsewhere behind a URL; a *Bus is the same
// in both forms.
package bus
