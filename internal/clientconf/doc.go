// Package clientconf finds out which hosts the node's own package managers and
// git are configured for, so that an egress set can be made without a host name
// in Gatehouse. It reads their configuration files and environment variables. It
// must never run a client, take a credential out of what it reads, or ask the
// network anything.
package clientconf
