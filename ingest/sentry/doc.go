// Package sentry verifies and normalizes webhooks of Sentry's integration
// platform. It reads a request's headers and raw body and writes an event. Who
// can reach a project's DSN chooses almost all of an event's text, so it must
// never label any of it above outsider, and never keep a grant code, a cookie, a
// header or a local variable.
package sentry
