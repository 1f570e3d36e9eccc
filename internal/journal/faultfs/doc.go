// Package faultfs is a file layer that fails: it keeps files in memory, as a
// disk and the page cache above it, and loses, shortens, flips and refuses what
// a test asks for. It reads and writes no real file and must never be used
// outside tests.
package faultfs
