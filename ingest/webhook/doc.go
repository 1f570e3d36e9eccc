// Package webhook verifies and normalizes deliveries of senders that have no
// package of their own: Standard Webhooks, any HMAC over a template, a shared
// token, and CloudEvents under each of these. It reads a request's headers and
// raw body and writes an event. Nothing of a body is above outsider but for the
// paths whose closed form the operator declared and the value has; it must never
// take a kind, an id or a time on the word of an unsigned header.
package webhook
