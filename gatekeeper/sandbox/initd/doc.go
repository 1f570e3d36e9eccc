// Package initd is what runs inside a sandbox before and beneath the agent. It
// reads its provider's orders from the control channel (package sandbox) and
// the agent's connections; it writes CONNECT lines to the door and its own
// events to the control channel. It must never hold a secret, never decide
// what may leave, never dial anything but the door's socket, and never leave a
// right to the process that becomes the agent.
//
// # Roles
//
// One program plays every role; the provider and its own re-executions choose
// by argv, and only under the path sandbox.InitPath.
//
//   - init: PID 1. It closes inherited descriptors, hands the kernel the
//     protection of PID 1 by resetting every signal to its default action (the
//     kernel then drops whatever the agent sends it, SIGSEGV and SIGKILL
//     included), is not dumpable, brings up lo, captures traffic, clones the
//     room and reaps until the room's process ends. Its end is the end of
//     everything inside, and the end of the control channel is its end.
//   - drop: the first moment of the room, in a fresh user namespace that maps
//     only uid and gid 1000. It locks its thread, sets the limits, drops the
//     bounding set and every capability, sets no_new_privs, installs the filter
//     on all threads and re-executes itself.
//   - room: runs the probe when asked, then becomes the agent by execve, in the
//     same process, uid, filter and mounts.
//   - control: a short-lived child of PID 1 without the filter, in which the
//     probe finds out what the machine could do at all.
//   - attempt: a child of the room, for probe cases that may be killed.
//
// # What leaves, and how
//
// In a session with a door, two local routes make every address of both
// families an address of lo, and one nf_tables chain redirects the first packet
// of each flow: TCP to any address but 127.0.0.0/8 and ::1 to the capture
// listener, UDP and TCP port 53 of any address to the resolver listener.
// Nothing else has a listener; other UDP is answered by an ICMP error or by
// nothing. For each captured connection init opens one SOCK_STREAM connection
// to sandbox.DoorPath and speaks first:
//
//	CONNECT 192.0.2.7:443 HTTP/1.1\r\n
//	Host: 192.0.2.7:443\r\n
//	\r\n
//
// IPv6 targets stand in brackets. The door answers with one HTTP/1.1 response
// head of at most 8 KiB. Status 200 makes the connection a tunnel, starting
// with the byte after the empty line, and either side may half-close. Any other
// status, and any end before the empty line, makes init reset the agent's
// connection. A target is what the agent asked the kernel for; init refuses
// loopback targets (a direct connection to its own listener) without a word to
// the door.
//
// DNS uses the same road with the target DNSTarget, "gatehouse-dns:53": after
// the 200 both directions carry DNS messages in the framing of DNS over TCP,
// a two-byte length in network order before each (RFC 1035 section 4.2.2).
// A UDP query becomes one connection with one message and its one answer,
// truncated by the door, not by init, when it exceeds what the client can take;
// a TCP query connection is forwarded as it is and may carry many.
//
// The plain proxy listener, sandbox.ProxyAddr, forwards bytes to the same
// socket unread: CONNECT with a name, or absolute-form requests. The agent can
// open the door's socket itself and write whatever it likes; the door trusts
// none of these words, only the listener that accepted them.
package initd
