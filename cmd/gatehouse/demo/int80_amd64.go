package demo

// int80getpid enters the kernel by its 32-bit door, which a filter that looks
// at 64-bit numbers only would leave open.
func int80getpid() int64
