// Package door is a session's only exit. It reads what comes out of one
// sandbox's unix socket, finds the one Authority each thing is meant for,
// builds the Action, asks the session's gate, and hands what may go on to a
// mediator or to upstream. It writes answers into the sandbox.
//
// The identity of a peer is the listener it came by; nothing it sends can say
// who it is. The door must never resolve or dial by itself, decide, read
// descriptors, or take a host from SNI, Host, :authority or an absolute-form
// target: those are only compared with the Authority.
//
// # What init sends
//
// A connection to the door begins with one HTTP/1.1 head.
//
//	CONNECT 198.18.0.7:443 HTTP/1.1      a redirected TCP connection and its
//	Host: 198.18.0.7:443                 original destination
//
//	CONNECT gatehouse-dns:53 HTTP/1.1    DNS: after the answer, messages with a
//	Host: gatehouse-dns:53               two-byte length, as in RFC 7766
//
// Everything else comes from proxy clients inside, byte for byte: CONNECT
// name:port and absolute-form requests. The answer to an accepted CONNECT is
// "HTTP/1.1 200 OK" with no other field; then the connection is the tunnel.
// Any other status means that nothing was opened; init resets its client.
package door
