package github

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// kind is what the package knows of one event kind.
type kind struct {
	name  string
	has   []string // objects that a body of this kind holds
	not   []string // values that it does not hold: they tell kinds of like shape apart
	rows  []ingest.Row
	facts []ingest.Fact
	lists []list
	// levels are facts that say how far the author of an object is proven.
	levels     []level
	entity     entity
	authors    []string // objects with an author_association
	main       string   // the object that an "edited" action changes
	time       string
	fork       func(*ingest.Doc) bool // the fact fork, and the level of a head branch
	write      bool                   // only write access can cause it
	freeAction bool                   // the action is a caller's string
	extra      func(*view, *event.Event)

	table *ingest.Table
}

type (
	list   struct{ name, path, key string }
	level  struct{ fact, path string }
	entity struct {
		kind       string // "" is the kind's own name
		id, number string
		pull       string // an object that says it is a pull request after all
	}
)

func (k *kind) fits(doc *ingest.Doc) bool {
	for _, p := range k.has {
		if n := doc.At(p); n.Null() {
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

// commonFacts stand in every kind.
var commonFacts = []ingest.Fact{
	{Name: "repository.id", Path: "/repository/id", Form: ingest.FormID},
	{Name: "repository.private", Path: "/repository/private", Form: ingest.FormBool},
	{Name: "repository.visibility", Path: "/repository/visibility", Form: ingest.FormEnum("public", "private", "internal")},
	{Name: "organization.id", Path: "/organization/id", Form: ingest.FormID},
	{Name: "installation.id", Path: "/installation/id", Form: ingest.FormID},
	{Name: "sender.id", Path: "/sender/id", Form: ingest.FormID},
	{Name: "sender.type", Path: "/sender/type", Form: ingest.FormEnum("User", "Bot", "Organization", "Mannequin")},
}

// tables flattens the kinds, and makes one of each published kind that has no
// rows of its own, and one for everything unpublished.
func tables() (map[string]*kind, *kind) {
	known := kinds()
	for _, name := range published {
		if known[name] == nil {
			known[name] = &kind{}
		}
	}
	for name, k := range known {
		k.finish(name)
	}
	other := &kind{}
	other.finish(event.KindUnrecognized)
	return known, other
}

func (k *kind) finish(name string) {
	k.name = name
	k.facts = append(k.facts[:len(k.facts):len(k.facts)], commonFacts...)
	k.table = ingest.NewTable(join(common, k.rows))
}

// published are the event kinds of GitHub's published schemas, November 2026.
var published = []string{
	"branch_protection_configuration", "branch_protection_rule", "check_run", "check_suite", "code_scanning_alert", "commit_comment",
	"create", "custom_property", "custom_property_values", "delete", "dependabot_alert", "deploy_key", "deployment",
	"deployment_protection_rule", "deployment_review", "deployment_status", "discussion", "discussion_comment", "fork",
	"github_app_authorization", "gollum", "installation", "installation_repositories", "installation_target", "issue_comment",
	"issue_dependencies", "issue_relates_to", "issues", "label", "marketplace_purchase", "member", "membership", "merge_group", "meta",
	"milestone", "org_block", "organization", "package", "page_build", "personal_access_token_request", "ping", "project",
	"project_card", "project_column", "projects_v2", "projects_v2_item", "projects_v2_status_update", "public", "pull_request",
	"pull_request_review", "pull_request_review_comment", "pull_request_review_thread", "push", "registry_package", "release",
	"repository", "repository_advisory", "repository_dispatch", "repository_import", "repository_ruleset",
	"repository_vulnerability_alert", "secret_scanning_alert", "secret_scanning_alert_location", "secret_scanning_scan",
	"security_advisory", "security_and_analysis", "sponsorship", "star", "status", "sub_issues", "team", "team_add", "watch",
	"workflow_dispatch", "workflow_job", "workflow_run",
}
