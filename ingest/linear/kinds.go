package linear

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

const (
	platform  = ingest.Rule(event.Platform)
	member    = ingest.Rule(event.Member)
	outsider  = ingest.Rule(event.Outsider)
	derived   = ingest.Rule(event.Derived)
	byAuthor  = ingest.Rule("author")  // who wrote this field of base, as far as base and the change say
	byFormer  = ingest.Rule("former")  // who had written it before this change
	byAccount = ingest.Rule("account") // base is an actor or user: its own choice
	byUser    = ingest.Rule("user")    // base has userId: a user of the workspace
)

// kind is what the package knows of one type.
type kind struct {
	name   string
	has    []string // what a body of this type holds
	rows   []ingest.Row
	facts  []ingest.Fact
	lists  map[string]string // fact -> array of ids
	entity string
	id     string
	time   string
	extra  func(*view, *event.Event)

	table *ingest.Table
}

func all(rule ingest.Rule, paths ...string) []ingest.Row {
	out := make([]ingest.Row, 0, len(paths))
	for _, p := range paths {
		out = append(out, ingest.Row{Path: p, Rule: rule})
	}
	return out
}

func text(rule ingest.Rule, as, path string) ingest.Row {
	return ingest.Row{Path: path, Rule: rule, As: as}
}

func use(path string, shape []ingest.Row) ingest.Row { return ingest.Row{Path: path, Use: shape} }

func join(parts ...any) []ingest.Row {
	var out []ingest.Row
	for _, p := range parts {
		switch p := p.(type) {
		case ingest.Row:
			out = append(out, p)
		case []ingest.Row:
			out = append(out, p...)
		}
	}
	return out
}

func fact(name, path string, form ingest.Form) ingest.Fact {
	return ingest.Fact{Name: name, Path: path, Form: form}
}

var (
	common = join(all(platform, "/action", "/type", "/organizationId", "/webhookId", "/webhookTimestamp", "/createdAt", "/actor/id", "/actor/type"),
		use("/actor", join(text(byAccount, "actor", "/name"), all(byAccount, "/email"))))

	commonFacts = []ingest.Fact{
		fact("organization.id", "/organizationId", ingest.FormUUID),
		fact("actor.id", "/actor/id", ingest.FormID),
		fact("actor.type", "/actor/type", ingest.FormEnum("user", "externalUser", "oauthClient", "integration")),
	}

	team = join(all(platform, "/id"), all(member, "/name", "/key"))

	// person is a user object beside an id.
	person = join(all(platform, "/id"), all(byAccount, "/name", "/email"))

	issue = join(
		all(platform, "/id", "/number", "/identifier", "/priority", "/stateId", "/state/id", "/state/type", "/teamId", "/creatorId", "/assigneeId",
			"/labelIds", "/labels/*/id", "/createdAt", "/updatedAt", "/archivedAt"),
		text(byAuthor, "title", "/title"), text(byAuthor, "description", "/description"),
		text(member, "label", "/labels/*/name"), text(member, "state", "/state/name"),
		use("/team", team), use("/creator", person),
	)

	// issueRef is an issue as other types carry it: its author is not named.
	issueRef = join(all(platform, "/id", "/identifier", "/teamId"), text(outsider, "issue_title", "/title"), use("/team", team))

	comment = join(
		all(platform, "/id", "/issueId", "/userId", "/createdAt", "/updatedAt"),
		text(byAuthor, "comment", "/body"), use("/issue", issueRef), use("/user", person),
	)

	// remark is a comment inside an agent session.
	remark = join(all(platform, "/id", "/userId", "/issueId"), text(byUser, "comment", "/body"))
)

func issueFacts(at string) []ingest.Fact {
	return []ingest.Fact{
		fact("issue.id", at+"/id", ingest.FormUUID),
		fact("number", at+"/number", ingest.FormCount),
		fact("team.id", at+"/teamId", ingest.FormUUID),
		fact("project.id", at+"/projectId", ingest.FormUUID),
		fact("state.id", at+"/stateId", ingest.FormUUID),
		fact("state.type", at+"/state/type", ingest.FormToken),
		fact("priority", at+"/priority", ingest.FormCount),
		fact("creator.id", at+"/creatorId", ingest.FormUUID),
		fact("assignee.id", at+"/assigneeId", ingest.FormUUID),
	}
}

// kinds returns the types with rows of their own, by the type in the body.
func kinds() map[string]*kind {
	m := map[string]*kind{
		"Issue": {
			name: "issue", has: []string{"/data/id", "/data/title"},
			rows: join(use("/data", issue), text(byFormer, "old_title", "/updatedFrom/title"), text(byFormer, "old_description", "/updatedFrom/description"),
				all(platform, "/updatedFrom/stateId", "/updatedFrom/updatedAt")),
			facts: issueFacts("/data"), lists: map[string]string{"labels": "/data/labelIds"}, entity: "issue", id: "/data/id", time: "/createdAt",
			extra: changed,
		},
		"Comment": {
			name: "comment", has: []string{"/data/id", "/data/body"},
			rows: join(use("/data", comment), text(byFormer, "old_comment", "/updatedFrom/body")),
			facts: []ingest.Fact{
				fact("comment.id", "/data/id", ingest.FormUUID), fact("issue.id", "/data/issueId", ingest.FormUUID),
				fact("creator.id", "/data/userId", ingest.FormUUID), fact("team.id", "/data/issue/teamId", ingest.FormUUID),
			},
			entity: "issue", id: "/data/issueId", time: "/createdAt", extra: changed,
		},
		"IssueSLA": {
			name: "issue_sla", has: []string{"/issueData/id"},
			rows:  join(use("/issueData", issue)),
			facts: issueFacts("/issueData"), lists: map[string]string{"labels": "/issueData/labelIds"}, entity: "issue", id: "/issueData/id", time: "/createdAt",
		},
		"Project": {
			name: "project", has: []string{"/data/id", "/data/name"},
			rows: join(use("/data", join(all(platform, "/id", "/state", "/statusId", "/priority", "/creatorId", "/leadId", "/teamIds", "/memberIds"),
				text(byAuthor, "title", "/name"), text(byAuthor, "description", "/description"), text(byAuthor, "content", "/content"), use("/lead", person)))),
			facts: []ingest.Fact{
				fact("project.id", "/data/id", ingest.FormUUID), fact("state", "/data/state", ingest.FormToken), fact("priority", "/data/priority", ingest.FormCount),
				fact("creator.id", "/data/creatorId", ingest.FormUUID),
			},
			lists: map[string]string{"teams": "/data/teamIds"}, entity: "project", id: "/data/id", time: "/createdAt", extra: changed,
		},
		"ProjectUpdate": {
			name: "project_update", has: []string{"/data/id", "/data/projectId"},
			rows:   join(use("/data", join(all(platform, "/id", "/health", "/projectId", "/userId"), text(byAuthor, "update", "/body")))),
			facts:  []ingest.Fact{fact("update.id", "/data/id", ingest.FormUUID), fact("project.id", "/data/projectId", ingest.FormUUID), fact("creator.id", "/data/userId", ingest.FormUUID)},
			entity: "project", id: "/data/projectId", time: "/createdAt",
		},
		"IssueLabel": {
			name: "issue_label", has: []string{"/data/id", "/data/name"},
			rows:  join(all(platform, "/data/id", "/data/isGroup", "/data/creatorId"), text(byLabel, "label", "/data/name")),
			facts: []ingest.Fact{fact("label.id", "/data/id", ingest.FormUUID)}, entity: "issue_label", id: "/data/id", time: "/createdAt",
		},
		"Reaction": {
			name: "reaction", has: []string{"/data/id", "/data/emoji"},
			rows:  join(all(platform, "/data/id", "/data/commentId", "/data/userId"), all(outsider, "/data/emoji")),
			facts: []ingest.Fact{fact("comment.id", "/data/commentId", ingest.FormUUID)}, entity: "comment", id: "/data/commentId", time: "/createdAt",
		},
		"AgentSessionEvent": agentSession(),
		"OAuthApp": {
			name: "oauth_app", has: []string{"/oauthClientId"}, rows: all(platform, "/oauthClientId"), time: "/createdAt",
			facts: []ingest.Fact{fact("client.id", "/oauthClientId", ingest.FormUUID)}, entity: "oauth_app", id: "/oauthClientId", extra: revoked,
		},
		"PermissionChange": {
			name: "permission_change", has: []string{"/oauthClientId"}, time: "/createdAt",
			rows:  all(platform, "/oauthClientId", "/appUserId", "/canAccessAllPublicTeams", "/addedTeamIds", "/removedTeamIds"),
			facts: []ingest.Fact{fact("client.id", "/oauthClientId", ingest.FormUUID)}, lists: map[string]string{"teams.added": "/addedTeamIds", "teams.removed": "/removedTeamIds"},
			entity: "oauth_app", id: "/oauthClientId",
			extra: func(_ *view, e *event.Event) { e.SetStop(event.StopTeam, e.Lists["teams.removed"]...) },
		},
	}
	// Types without rows of their own: kept with their ids.
	for body, name := range map[string]string{
		"Attachment": "attachment", "AuditEntry": "audit_entry", "Customer": "customer", "CustomerNeed": "customer_need", "Cycle": "cycle",
		"Document": "document", "Initiative": "initiative", "InitiativeUpdate": "initiative_update", "OAuthAuthorization": "oauth_authorization",
		"ProjectLabel": "project_label", "Release": "release", "ReleaseNote": "release_note", "User": "user", "AppUserNotification": "app_user_notification",
	} {
		m[body] = &kind{name: name, time: "/createdAt"}
	}
	m["OAuthAuthorization"].extra = revoked
	for _, k := range m {
		k.finish()
	}
	return m
}

const byLabel = ingest.Rule("label") // who made a label

func (k *kind) finish() {
	k.facts = append(k.facts[:len(k.facts):len(k.facts)], commonFacts...)
	k.table = ingest.NewTable(join(common, k.rows))
}

func (k *kind) fits(doc *ingest.Doc) bool {
	for _, p := range k.has {
		if doc.At(p).Null() {
			return false
		}
	}
	return true
}

// IN-22: a session that no person asked for has no creator and no member's text
// of its own; promptContext mixes everybody's words and is not read.
func agentSession() *kind {
	return &kind{
		name: "agent_session_event", has: []string{"/agentSession/id"}, time: "/createdAt",
		rows: join(
			all(platform, "/oauthClientId", "/appUserId", "/agentSession/id", "/agentSession/status", "/agentSession/type", "/agentSession/creatorId",
				"/agentSession/issueId", "/agentActivity/id", "/agentActivity/userId", "/agentActivity/signal"),
			use("/agentSession/issue", join(issueRef, text(outsider, "issue_description", "/description"))), use("/agentSession/comment", remark), use("/agentSession/creator", person),
			use("/previousComments/*", remark), text(member, "guidance", "/guidance/*/body"),
			ingest.Row{Path: "/promptContext", Rule: derived},
			use("/agentActivity", join(text(byUser, "prompt", "/content/body"), use("/user", person))),
		),
		facts: []ingest.Fact{
			fact("agent_session.id", "/agentSession/id", ingest.FormUUID), fact("agent_session.status", "/agentSession/status", ingest.FormToken),
			fact("issue.id", "/agentSession/issueId", ingest.FormUUID), fact("team.id", "/agentSession/issue/teamId", ingest.FormUUID),
			fact("creator.id", "/agentSession/creatorId", ingest.FormUUID), fact("signal", "/agentActivity/signal", ingest.FormToken),
		},
		entity: "issue", id: "/agentSession/issueId",
		extra: func(v *view, e *event.Event) {
			if v.doc.At("/agentActivity/signal").Is("stop") {
				e.SetStop(event.StopAgentSession, v.doc.At("/agentSession/id").ID())
			}
		},
	}
}

func revoked(v *view, e *event.Event) {
	if e.Action == "revoked" {
		e.SetStop(event.StopOrganization, v.doc.At("/organizationId").ID())
	}
}

// changed says in facts which of the texts and states this update touched.
func changed(v *view, e *event.Event) {
	for _, f := range []string{"title", "description", "body", "stateId", "labelIds", "assigneeId", "priority"} {
		if v.doc.At("/updatedFrom").Get(f).Exists() {
			e.Lists["changed"] = append(e.Lists["changed"], f)
		}
	}
}
