// Package leak searches what the tests leave behind for secrets that must not
// be there. A Set knows every secret that a suite of tests put into a store, in
// the forms in which it could show: plain, base64 at each of its three shifts,
// hex, escaped for a URL or in JSON. One pass over the bytes looks for all.
//
// What may hold a secret, as the file from which a node reads it, is named by its
// exact path together with that one secret: any other secret in that file, and
// that secret in any other file, is found.
package leak
