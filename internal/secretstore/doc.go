// Package secretstore keeps the credentials that connections and endpoints
// name by ${secret:NAME}. It reads and writes one file, encrypted with age to
// the store's own identity. It must never give a value to anything but the
// caller of Get, print one, write one unencrypted, or go on with a file that it
// cannot read whole.
//
// The identity is a key of its own, so that the file can be copied and backed
// up like any other: whoever has the file alone has nothing.
package secretstore
