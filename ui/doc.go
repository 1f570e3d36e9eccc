// Package ui serves the pages at which people look at a node and change it. It
// reads internal/view (and what cmd hands it in Options) and writes HTML; every
// change it offers goes through the same commands as the API and the CLI. It
// must never decide, hold state of its own, render text of strangers as
// anything but boxed text, or make a page that asks another origin for
// anything.
//
// A page is a function from a request to a templ component. The URL is the
// state: filters, cursors and what is open stand in it, so that back, links and
// a browser without JavaScript work. htmx only replaces the part that changed;
// it runs no attribute that does not carry the page's nonce, so that injected
// markup stays inert. static/ holds everything a page loads, embedded and
// named by its content.
package ui

//go:generate go tool templ generate
