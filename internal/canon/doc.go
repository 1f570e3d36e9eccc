// Package canon writes and reads one restricted profile of RFC 8785 canonical
// JSON. It reads bytes in memory and writes bytes in memory. It must never
// accept a second spelling of a value: what Scanner accepts is exactly what
// Writer writes, so two parsers can never see two meanings in one payload.
//
// The profile: objects with printable ASCII keys in strictly rising byte
// order, arrays, strings, booleans and integers. No null, no fraction, no
// exponent, no white space, no duplicate key, nesting of at most MaxDepth.
// Integers lie in 0..MaxInt, or -MaxInt..MaxInt where the schema calls Int.
// Strings are valid UTF-8 in Unicode normalization form C without control
// characters (C0, DEL, C1) and without noncharacters; of the printable ASCII
// characters only the quote and the backslash are escaped. Digests are
// base64url without padding, times RFC 3339 in UTC with nine decimals.
//
// A string outside the profile is an error, never changed in silence. Clean is
// the one replacement rule, for callers who must record text they do not
// choose and say so.
package canon
