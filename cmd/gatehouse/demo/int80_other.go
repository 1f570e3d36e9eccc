//go:build !amd64

package demo

// int80getpid has no 32-bit entry to try on this architecture.
func int80getpid() int64 { return -1 }
