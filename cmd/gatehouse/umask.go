package main

import "golang.org/x/sys/unix"

// closeUmask keeps whatever the node writes from other users, whichever umask it
// was started with. What a session's user must read is opened where it is made.
func closeUmask() { unix.Umask(0o077) }
