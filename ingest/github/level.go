package github

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// view is one document seen with the question who wrote what.
type view struct {
	s       *Source
	k       *kind
	action  string
	doc     *ingest.Doc
	sender  ingest.Node
	main    ingest.Node             // the object whose text an "edited" action changes
	floor   event.Origin            // of an account that is known but not proven
	members map[string]event.Origin // user id -> level by an association in this document
	proven  map[string]bool         // user ids that GitHub's API confirmed
	fork    bool                    // the head branch is not this repository's
}

func (s *Source) view(k *kind, doc *ingest.Doc, action string, proven map[string]bool) *view {
	v := &view{s: s, k: k, doc: doc, action: action, sender: doc.At("/sender"), main: doc.At(k.main), floor: event.Outsider,
		members: map[string]event.Origin{}, proven: proven}
	// Rule 5: somebody gave access to a private repository, but not write access.
	if repo := doc.At("/repository"); repo.Get("private").True() {
		v.floor = event.Contributor
	}
	// A run on pull_request_target carries a stranger's branch under the name of
	// the base repository.
	v.fork = k.fork != nil && k.fork(doc) || doc.At("/workflow_run/event").Is("pull_request_target")
	for _, p := range k.authors {
		if obj := doc.At(p); obj.Get("user").Get("type").Is("User") {
			v.members[obj.Get("user").Get("id").ID()] = v.association(obj)
		}
	}
	return v
}

// association reads author_association of the very object whose text is
// tagged. It is computed without a viewer and errs low, so a proof is believed
// and anything else means "not proven" (IN-17).
func (v *view) association(obj ingest.Node) event.Origin {
	a := obj.Get("author_association")
	switch {
	case v.proven[obj.Get("user").Get("id").ID()]:
		return event.Member
	case a.Is("OWNER"), a.Is("MEMBER"), a.Is("COLLABORATOR"):
		return event.Member
	case a.Is("CONTRIBUTOR"), a.Is("FIRST_TIME_CONTRIBUTOR"), a.Is("FIRST_TIMER"):
		return event.Contributor
	}
	return v.floor
}

// resolve decides the rules of rows.go. It is pure.
func (v *view) resolve(rule ingest.Rule, base, _ ingest.Node) ingest.Label {
	switch rule {
	case byAuthor:
		return v.author(base)
	case byAccount:
		return ingest.Label{Origin: v.account(base), Author: base.Get("id").ID()}
	case bySender:
		return ingest.Label{Origin: v.senderLevel(), Author: v.sender.Get("id").ID()}
	case byHead:
		return ingest.Label{Origin: v.head(base)}
	case byApp:
		app := base.Get("app")
		if !app.Exists() {
			app = base
		}
		return ingest.Label{Origin: v.s.app(app.Get("id").ID())}
	case byAuthorOfOld:
		return v.wrote(v.main)
	case byEditor:
		return ingest.Label{Origin: event.Join(v.senderLevel(), v.floor)}
	}
	return ingest.Label{Origin: event.Outsider}
}

// head is the level of who controls a head branch. IN-15: whoever opened the
// pull request, a fork's branch is the fork's; a branch of this repository was
// pushed by somebody with write access.
func (v *view) head(base ingest.Node) event.Origin {
	foreign := v.fork
	if pr := base.Get("head"); pr.Object() {
		foreign = foreign || pr.At("/repo/id").ID() != v.doc.At("/repository/id").ID()
	}
	if foreign {
		return event.Outsider
	}
	return event.Member
}

// author is the level of who wrote the text of obj as it is now. IN-19: an edit
// may have been another person's, so the lower of the two counts.
func (v *view) author(obj ingest.Node) ingest.Label {
	l := v.wrote(obj)
	if v.action == "edited" && obj == v.main && v.sender.Get("id").ID() != l.Author {
		return ingest.Label{Origin: event.Join(l.Origin, v.senderLevel())}
	}
	return l
}

// wrote is the level of who made obj (IN-16: each object has its own).
func (v *view) wrote(obj ingest.Node) ingest.Label {
	u := obj.Get("user")
	if u.Null() {
		u = obj.Get("author")
	}
	l := ingest.Label{Origin: event.Outsider, Author: u.Get("id").ID()}
	switch {
	case u.Null(), ghost(u):
	case u.Get("type").Is("Bot"):
		l.Origin = v.bot(u, obj)
	case u.Get("type").Is("User"):
		l.Origin = v.association(obj)
	}
	return l
}

// bot is the level of an app's account: the operator's list, or nothing. A bot
// often relays what strangers wrote.
func (v *view) bot(u, obj ingest.Node) event.Origin {
	if o, ok := v.s.o.Bots[u.Get("id").ID()]; ok {
		return o
	}
	return v.s.app(obj.At("/performed_via_github_app/id").ID())
}

func (s *Source) app(id string) event.Origin {
	if o, ok := s.o.Apps[id]; ok {
		return o
	}
	return event.Outsider
}

// account is the level of a user object that wrote nothing here: its login is
// its own choice.
func (v *view) account(u ingest.Node) event.Origin {
	id := u.Get("id").ID()
	switch {
	case u.Null(), ghost(u):
		return event.Outsider
	case u.Get("type").Is("Bot"):
		return v.bot(u, ingest.Node{})
	}
	if v.proven[id] {
		return event.Member
	}
	if o, ok := v.members[id]; ok {
		return o
	}
	if id != "" && id == v.sender.Get("id").ID() && v.needsWrite() {
		return event.Member
	}
	return v.floor
}

// senderLevel is the level of who caused the event, for authorising the action.
// It says nothing of the text (IN-18).
func (v *view) senderLevel() event.Origin { return v.account(v.sender) }

// needsWrite reports whether only somebody with triage or write access can
// cause this action. The author of an item is judged by the association first:
// an issue template lets a stranger label an own issue.
func (v *view) needsWrite() bool {
	if v.k.write {
		return true
	}
	switch v.action {
	case "labeled", "unlabeled", "assigned", "unassigned", "milestoned", "demilestoned", "locked", "unlocked", "pinned", "unpinned",
		"transferred", "review_requested", "review_request_removed", "edited", "dismissed":
		return true
	}
	return false
}

// ghost is a deleted account, or one that stands for a foreign identity.
func ghost(u ingest.Node) bool {
	return u.Get("login").Is("ghost") || u.Get("type").Is("Mannequin")
}
