package linear

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// view is one document seen with the question who wrote what.
type view struct {
	s      *Source
	doc    *ingest.Doc
	action string
}

// resolve decides the rules of kinds.go. It is pure.
func (v *view) resolve(rule ingest.Rule, base, at ingest.Node) ingest.Label {
	switch rule {
	case byAuthor:
		return v.author(base, at)
	case byFormer:
		return v.wrote(v.doc.At("/data"))
	case byLabel:
		return ingest.Label{Origin: event.Join(event.Member, v.change()), Author: v.doc.At("/data/creatorId").ID()}
	case byAccount:
		return ingest.Label{Origin: v.account(base), Author: base.Get("id").ID()}
	case byUser:
		if id := base.Get("userId").ID(); id != "" && !external(base) {
			return ingest.Label{Origin: event.Member, Author: id}
		}
	}
	return ingest.Label{Origin: event.Outsider}
}

// author is who wrote one field of an entity as it is now: its creator, and
// whoever makes this change if the change touches the field.
func (v *view) author(base, at ingest.Node) ingest.Label {
	l := v.wrote(base)
	if base != v.doc.At("/data") {
		return l
	}
	touched := v.action == "create"
	for _, field := range []string{"title", "description", "body", "name", "content"} {
		if base.Get(field) == at && v.doc.At("/updatedFrom").Get(field).Exists() {
			touched = true
		}
	}
	if touched {
		l.Origin = event.Join(l.Origin, v.change())
	}
	return l
}

// wrote is who made an entity. Any sign of another system on it pulls all of
// its text to what that system's strangers may write, also when a member
// touches it later.
func (v *view) wrote(base ingest.Node) ingest.Label {
	id := base.Get("creatorId").ID()
	if id == "" {
		id = base.Get("userId").ID()
	}
	switch {
	case external(base):
		service, _ := base.Get("integrationSourceType").Text()
		if o, ok := v.s.o.Services[service]; ok && base.Get("externalUserCreatorId").Null() && base.Get("externalUserId").Null() {
			return ingest.Label{Origin: o, Author: id}
		}
		return ingest.Label{Origin: event.Outsider, Author: id}
	case id != "":
		return ingest.Label{Origin: event.Member, Author: id}
	}
	return ingest.Label{Origin: event.Outsider}
}

func external(n ingest.Node) bool {
	for _, sign := range []string{"externalUserCreatorId", "externalUserId", "integrationSourceType", "botActor", "syncedWith"} {
		if !n.Get(sign).Null() {
			return true
		}
	}
	return false
}

// change is the level of who makes this change. No actor at all is an
// automation: it derives from somebody's words.
func (v *view) change() event.Origin {
	who := v.doc.At("/actor")
	if who.Null() {
		return event.Derived
	}
	return v.account(who)
}

// account is the level of an actor or user object.
func (v *view) account(who ingest.Node) event.Origin {
	switch t := who.Get("type"); {
	case t.Is("user"):
		return event.Member
	case t.Is("integration"):
		service, _ := who.Get("service").Text()
		if o, ok := v.s.o.Services[service]; ok {
			return o
		}
	case t.Is("oauthClient"):
		if o, ok := v.s.o.Clients[who.Get("id").ID()]; ok {
			return o
		}
	case t.Null() && who.Get("id").ID() != "":
		return event.Member // a user object beside its id: creator, lead, author
	}
	return event.Outsider
}

// actor is who caused the event. In an agent session it is who prompted, or who
// asked for it; nobody for one that an automation or another agent began.
func (v *view) actor() event.Actor {
	who := v.doc.At("/actor")
	if v.doc.At("/agentSession").Object() {
		who = v.doc.At("/agentSession/creator")
		if v.doc.At("/agentActivity").Object() {
			who = v.doc.At("/agentActivity/user")
		}
	}
	if who.Null() {
		return event.Actor{Kind: "none", Level: event.Outsider}
	}
	a := event.Actor{ID: who.Get("id").ID(), Kind: "user", Level: v.account(who)}
	switch t := who.Get("type"); {
	case t.Is("externalUser"):
		a.Kind = "external"
	case t.Is("oauthClient"):
		a.Kind = "app"
	case t.Is("integration"):
		a.Kind = "integration"
	}
	return a
}
