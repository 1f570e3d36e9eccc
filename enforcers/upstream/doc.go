// Package upstream is the only part of Gatehouse that resolves a name, opens a
// connection to the outside or adds a credential. It reads a Permit and an
// HTTP request, and writes to the network and the Permit's outcome.
//
// It resolves a name once, at its own configured resolver; refuses the whole
// answer if any address in it is not public; dials the pinned address and no
// name; checks the address again in the socket's control hook and once more on
// the connected socket; verifies the certificate against the Permit's name;
// and adds the credential last. It must never take an address or a host from
// anything but the Permit, follow a redirect, read a proxy from the
// environment, or go on when one of its checks fails.
package upstream
