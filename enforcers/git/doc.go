// Package git mediates git over HTTPS. It reads the requests of a session that
// go to the hosts of scm connections, finds the one repository each is about
// in the node's own list, and asks the gate; what is permitted it sends through
// upstream in a form of its own, and what is refused it answers in words that
// git prints. A push is read whole and looked into by an Inspector before the
// gate is asked.
//
// It must never take a repository from anything but the node's list, follow a
// redirect, send a byte of a push before it was permitted, put a credential
// into a request or an answer, or decide.
package git
