// Package review helps people turn shadow into hard: it explains a refusal,
// offers narrow changes to a bundle with their new authority in words, judges past
// actions again under a candidate, and lists what still stands against promotion.
// It reads internal/view, bundle versions and the stored actions; it writes marks
// of groups to the control chain and nothing else. It must never change a bundle,
// take words of an agent or an event for a suggestion, or judge on the live path:
// it has enforcers of its own.
//
// CLI, API and UI show the plain structs of this package, so that all three tell
// the same.
package review
