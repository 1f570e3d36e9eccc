// Package sourcetest checks that a source keeps the contract of ingest.Source.
// It reads payload and golden files, and writes golden files when asked to. It
// is for tests only.
package sourcetest
