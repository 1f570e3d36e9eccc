// Package github verifies and normalizes GitHub webhooks. It reads a request's
// headers and raw body and writes an event; the provenance of every field is a
// table in this package (docs/sources/github.md shows it). It must never take a
// trust level from the text of a payload, match a repository by name, or drop a
// kind it does not know.
package github
