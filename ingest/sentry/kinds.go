package sentry

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

const (
	platform   = ingest.Rule(event.Platform)
	member     = ingest.Rule(event.Member)
	outsider   = ingest.Rule(event.Outsider)
	derived    = ingest.Rule(event.Derived)
	credential = ingest.Rule(event.Credential)
	byActor    = ingest.Rule("actor") // who did it: a user of the organisation, or an application
)

// kind is what the package knows of one resource.
type kind struct {
	name   string
	has    []string // what a body of this resource holds
	not    []string
	rows   []ingest.Row
	facts  []ingest.Fact
	entity string // its kind
	id     string // pointer of its id
	time   string
	stops  string // an action that ends the installation
	// same is the second dedupe key: what two bodies have in common that say one
	// thing. nil: only equal bodies do.
	same func(doc *ingest.Doc) []ingest.Node

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

func join(parts ...[]ingest.Row) []ingest.Row {
	var out []ingest.Row
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func fact(name, path string, form ingest.Form) ingest.Fact {
	return ingest.Fact{Name: name, Path: path, Form: form}
}

// common stands in every resource.
var (
	common = join(all(platform, "/action", "/installation/uuid", "/installation/organization/slug", "/installation/app/uuid", "/actor/id", "/actor/type"),
		[]ingest.Row{text(byActor, "actor", "/actor/name")})

	commonFacts = []ingest.Fact{
		fact("installation.uuid", "/installation/uuid", ingest.FormUUID),
		fact("actor.type", "/actor/type", ingest.FormEnum("user", "application")),
		fact("actor.id", "/actor/id", ingest.FormID),
	}

	levels = ingest.FormEnum("fatal", "error", "warning", "info", "debug", "sample")

	// occurrence is one error event. Everything an SDK sends is the choice of
	// whoever holds the DSN, which stands in every browser.
	occurrence = []ingest.Row{
		{Path: "/event_id", Rule: outsider}, {Path: "/datetime", Rule: platform},
		{Path: "/project", Rule: platform}, {Path: "/issue_id", Rule: platform}, {Path: "/key_id", Rule: platform}, {Path: "/received", Rule: platform},
		{Path: "/title", Rule: outsider, As: "title"}, {Path: "/message", Rule: outsider, As: "message"},
		{Path: "/culprit", Rule: outsider, As: "culprit"}, {Path: "/location", Rule: outsider, As: "location"},
		{Path: "/metadata", Rule: outsider, As: "metadata"},
		{Path: "/exception/values/*/type", Rule: outsider, As: "exception_type"}, {Path: "/exception/values/*/value", Rule: outsider, As: "exception"},
		{Path: "/exception/values/*/stacktrace", Rule: outsider, As: "stacktrace"},
		{Path: "/release", Rule: outsider, As: "release"}, {Path: "/environment", Rule: outsider, As: "environment"},
		{Path: "/tags", Rule: outsider, As: "tags"}, {Path: "/breadcrumbs", Rule: outsider},
		{Path: "/request/cookies", Rule: credential}, {Path: "/request/headers", Rule: credential},
		{Path: "/request/data", Rule: credential}, {Path: "/request/env", Rule: credential},
		{Path: "/request/url", Rule: outsider, As: "request_url"}, {Path: "/request/method", Rule: outsider},
		{Path: "/exception/values/*/stacktrace/frames/*/vars", Rule: credential},
		{Path: "/user/email", Rule: credential}, {Path: "/user/ip_address", Rule: credential},
	}

	occurrenceFacts = func(at string) []ingest.Fact {
		return []ingest.Fact{
			fact("event_id", at+"/event_id", ingest.FormHex(32)),
			fact("issue.id", at+"/issue_id", ingest.FormID),
			fact("project.id", at+"/project", ingest.FormID),
			fact("level", at+"/level", levels),
		}
	}

	issue = join(
		all(platform, "/id", "/shortId", "/status", "/substatus", "/priority", "/issueType", "/issueCategory", "/count", "/userCount", "/firstSeen", "/lastSeen",
			"/isUnhandled", "/project/id", "/project/slug", "/web_url", "/permalink"),
		all(member, "/project/name", "/assignedTo"),
		all(outsider, "/level", "/platform"),
		[]ingest.Row{text(derived, "title", "/title"), text(derived, "culprit", "/culprit"), text(derived, "metadata", "/metadata")},
	)
)

// kinds returns the resources by the name in the resource header.
func kinds() map[string]*kind {
	m := map[string]*kind{
		"installation": {
			has: []string{"/data/installation"},
			rows: join(all(platform, "/data/installation/status", "/data/installation/uuid", "/data/installation/app/uuid", "/data/installation/app/slug",
				"/data/installation/organization/slug"), all(credential, "/data/installation/code")),
			facts: []ingest.Fact{fact("status", "/data/installation/status", ingest.FormToken)}, entity: "installation", id: "/data/installation/uuid", stops: "deleted",
		},
		// IN-11: a real alert has data.event and tags in pairs, and no data.issue.
		"event_alert": {
			has: []string{"/data/event"}, not: []string{"/data/error"},
			rows: join([]ingest.Row{{Path: "/data/event", Use: occurrence}, text(member, "rule", "/data/triggered_rule"),
				text(member, "alert", "/data/issue_alert/title"), text(member, "alert_settings", "/data/issue_alert/settings")}),
			facts: occurrenceFacts("/data/event"), entity: "issue", id: "/data/event/issue_id", time: "/data/event/datetime",
			same: func(doc *ingest.Doc) []ingest.Node {
				return []ingest.Node{doc.At("/data/event/project"), doc.At("/data/event/event_id"), doc.At("/data/triggered_rule")}
			},
		},
		"error": {
			has: []string{"/data/error"}, not: []string{"/data/event"},
			rows:  []ingest.Row{{Path: "/data/error", Use: occurrence}},
			facts: occurrenceFacts("/data/error"), entity: "issue", id: "/data/error/issue_id", time: "/data/error/datetime",
			same: func(doc *ingest.Doc) []ingest.Node {
				return []ingest.Node{doc.At("/data/error/project"), doc.At("/data/error/event_id")}
			},
		},
		"issue": {
			has:  []string{"/data/issue", "/data/issue/id"},
			rows: []ingest.Row{{Path: "/data/issue", Use: issue}},
			facts: []ingest.Fact{
				fact("issue.id", "/data/issue/id", ingest.FormID), fact("project.id", "/data/issue/project/id", ingest.FormID),
				fact("status", "/data/issue/status", ingest.FormToken), fact("substatus", "/data/issue/substatus", ingest.FormToken),
				fact("priority", "/data/issue/priority", ingest.FormToken), fact("issue.type", "/data/issue/issueType", ingest.FormToken),
				fact("issue.category", "/data/issue/issueCategory", ingest.FormToken), fact("level", "/data/issue/level", levels),
				fact("count", "/data/issue/count", ingest.FormID), fact("user_count", "/data/issue/userCount", ingest.FormCount),
				fact("unhandled", "/data/issue/isUnhandled", ingest.FormBool),
			},
			entity: "issue", id: "/data/issue/id", time: "/data/issue/lastSeen",
			// Who did it and to whom belong to it: an issue may be assigned twice
			// without being seen in between.
			same: func(doc *ingest.Doc) []ingest.Node {
				parts := []ingest.Node{doc.At("/data/issue/id"), doc.At("/data/issue/lastSeen"), doc.At("/actor")}
				if to := doc.At("/data/issue/assignedTo"); !to.Null() {
					parts = append(parts, to)
				}
				return parts
			},
		},
		"metric_alert": {
			has: []string{"/data/metric_alert"},
			rows: join(all(platform, "/data/metric_alert/id", "/data/metric_alert/identifier", "/data/metric_alert/status", "/data/metric_alert/organization_id",
				"/data/metric_alert/date_started", "/data/metric_alert/alert_rule/id", "/data/metric_alert/alert_rule/aggregate",
				"/data/metric_alert/alert_rule/time_window"),
				[]ingest.Row{text(member, "rule", "/data/metric_alert/alert_rule/name"), text(member, "query", "/data/metric_alert/alert_rule/query"),
					text(member, "title", "/data/metric_alert/title"), text(member, "description_title", "/data/description_title"),
					text(member, "description", "/data/description_text")},
				all(member, "/data/metric_alert/projects")),
			facts: []ingest.Fact{
				fact("alert.id", "/data/metric_alert/id", ingest.FormID), fact("rule.id", "/data/metric_alert/alert_rule/id", ingest.FormID),
				fact("organization.id", "/data/metric_alert/organization_id", ingest.FormID), fact("status", "/data/metric_alert/status", ingest.FormCount),
				fact("time_window", "/data/metric_alert/alert_rule/time_window", ingest.FormCount),
			},
			entity: "metric_alert", id: "/data/metric_alert/id", time: "/data/metric_alert/date_started",
		},
		"comment": {
			has: []string{"/data/comment_id", "/data/issue_id"},
			rows: join(all(platform, "/data/comment_id", "/data/issue_id", "/data/timestamp", "/data/project_slug"),
				[]ingest.Row{text(byActor, "comment", "/data/comment")}),
			facts:  []ingest.Fact{fact("comment.id", "/data/comment_id", ingest.FormID), fact("issue.id", "/data/issue_id", ingest.FormID)},
			entity: "issue", id: "/data/issue_id", time: "/data/timestamp",
		},
		// A model's words about outsiders' text.
		"seer": {
			has: []string{"/data/run_id"},
			rows: join(all(platform, "/data/run_id", "/data/group_id"), []ingest.Row{text(derived, "root_cause", "/data/root_cause"),
				text(derived, "solution", "/data/solution"), text(derived, "code_changes", "/data/code_changes")}),
			facts:  []ingest.Fact{fact("run_id", "/data/run_id", ingest.FormID), fact("issue.id", "/data/group_id", ingest.FormID)},
			entity: "issue", id: "/data/group_id",
		},
		"preprod_artifact": {has: []string{"/data"}},
		"size_analysis":    {has: []string{"/data"}},
	}
	for name, k := range m {
		k.finish(name)
	}
	return m
}

func (k *kind) finish(name string) {
	k.name = name
	k.facts = append(k.facts[:len(k.facts):len(k.facts)], commonFacts...)
	k.table = ingest.NewTable(join(common, k.rows))
}

func (k *kind) fits(doc *ingest.Doc) bool {
	for _, p := range k.has {
		if doc.At(p).Null() {
			return false
		}
	}
	for _, p := range k.not {
		if doc.At(p).Exists() {
			return false
		}
	}
	return true
}
