// Package view folds the streams into lists for people: sessions, events,
// receipts of a session, bundles with their history. It reads
// gatehouse.v1.events, sessions, log and control, and writes nothing. What it
// shows is late and disposable: it can be thrown away and folded again to the
// same state, and no decision may ever read it.
package view
