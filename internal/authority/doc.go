// Package authority holds the one value that names where an action goes, and
// the host grammar that admits it. It reads text from the agent and returns an
// Authority or a problem. It must never resolve or dial anything.
package authority
