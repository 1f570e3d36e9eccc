// Package pull fetches container images by digest from a registry into a folder
// of OCI layouts. It reaches the outside only through the round trippers that it
// is given, one for each host that may be asked, and writes a layout once it is
// whole. It must never take a tag for an image, keep a byte that no digest
// covers, follow a registry to a host that nobody declared, or let an answer's
// size decide how much is written.
package pull
