package github

import (
	"slices"

	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// Rules that need a look at the document. base is the object under which a row
// stands (level.go resolves them).
const (
	byAuthor  ingest.Rule = "author"  // who wrote base, by the association on base itself
	byAccount ingest.Rule = "account" // base is a user: what that account chose for itself
	bySender  ingest.Rule = "sender"  // who caused the event
	byHead    ingest.Rule = "head"    // who controls the branch that base came from
	byApp     ingest.Rule = "app"     // the app that made base
	byEditor  ingest.Rule = "editor"  // who edited a wiki page: anyone, on a public repository
	// byAuthorOfOld is the author before an edit, which the payload names only
	// for the item as it is now: the item's association without the editor.
	byAuthorOfOld ingest.Rule = "author_of_old"
)

// The origins, as rules.
const (
	platform    = ingest.Rule(event.Platform)
	member      = ingest.Rule(event.Member)
	contributor = ingest.Rule(event.Contributor)
	outsider    = ingest.Rule(event.Outsider)
	credential  = ingest.Rule(event.Credential)
)

// all gives several paths one rule.
func all(rule ingest.Rule, paths ...string) []ingest.Row {
	out := make([]ingest.Row, 0, len(paths))
	for _, p := range paths {
		out = append(out, ingest.Row{Path: p, Rule: rule})
	}
	return out
}

// text lifts a path into the event's text.
func text(rule ingest.Rule, as, path string) ingest.Row {
	return ingest.Row{Path: path, Rule: rule, As: as}
}

// use puts the rows of a shape below a path.
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
	return slices.Clip(out)
}

// Shapes that many kinds share. A login, a name and a branch are text: whoever
// owns them chose them.
var (
	user = join(all(platform, "/id", "/type"), text(byAccount, "login", "/login"))

	// owner is a user or organization that holds the repository.
	owner = join(all(platform, "/id", "/type"), text(member, "owner", "/login"))

	repository = join(
		all(platform, "/id", "/private", "/visibility", "/fork", "/archived"),
		text(member, "repository", "/full_name"),
		all(member, "/name", "/default_branch", "/homepage", "/topics", "/custom_properties"),
		text(member, "repository_description", "/description"),
		use("/owner", owner),
	)

	// headRepository may be anybody's fork.
	headRepository = join(all(platform, "/id", "/private", "/fork"), text(byHead, "head_repository", "/full_name"), all(byHead, "/name"))

	organization = join(all(platform, "/id"), text(member, "organization", "/login"), all(member, "/description"))

	installation = all(platform, "/id")

	label = join(all(platform, "/id"), text(member, "label", "/name"), all(member, "/description"))

	milestone = join(all(platform, "/id", "/number"), text(member, "milestone", "/title"), all(member, "/description"))

	issue = join(
		all(platform, "/id", "/number", "/state", "/state_reason", "/locked", "/author_association", "/created_at", "/updated_at", "/closed_at"),
		text(byAuthor, "title", "/title"), text(byAuthor, "body", "/body"),
		use("/user", user), use("/labels/*", label), use("/milestone", milestone),
		all(member, "/assignees"),
	)

	comment = join(
		all(platform, "/id", "/author_association", "/created_at", "/updated_at", "/commit_id"),
		text(byAuthor, "comment", "/body"), use("/user", user),
	)

	// pullRef is a pull request as check and workflow events list it.
	pullRef = join(all(platform, "/id", "/number", "/head/sha", "/head/repo/id", "/base/sha", "/base/repo/id"),
		all(member, "/base/ref"), text(byHead, "head_ref", "/head/ref"))

	pullRequest = join(
		all(platform, "/id", "/number", "/state", "/draft", "/merged", "/locked", "/author_association", "/created_at", "/updated_at", "/closed_at",
			"/merge_commit_sha", "/head/sha", "/base/sha"),
		text(byAuthor, "title", "/title"), text(byAuthor, "body", "/body"),
		use("/user", user), use("/labels/*", label), all(member, "/requested_reviewers", "/assignees"),
		text(byHead, "head_ref", "/head/ref"), all(byHead, "/head/label"),
		text(member, "base_ref", "/base/ref"),
		use("/head/repo", headRepository), use("/base/repo", all(platform, "/id")),
	)

	// commit is git data: author, committer and message are whatever somebody
	// typed, also when a member pushed it.
	commit = join(all(platform, "/id", "/tree_id"), text(outsider, "commit_message", "/message"), all(outsider, "/author", "/committer"))

	// app may be anybody's: its owner is not the repository's.
	app = join(all(platform, "/id", "/owner/id"), all(byApp, "/name", "/description"), text(byApp, "app_owner", "/owner/login"))

	suite = join(
		all(platform, "/id", "/status", "/conclusion", "/head_sha", "/before", "/after"),
		text(member, "head_branch", "/head_branch"), // null for a fork
		use("/app", app), use("/pull_requests/*", pullRef),
	)

	advisory = join(
		all(platform, "/ghsa_id", "/cve_id", "/severity", "/published_at", "/updated_at"),
		text(contributor, "summary", "/summary"), text(contributor, "description", "/description"),
		all(contributor, "/vulnerabilities", "/cwes"),
	)

	workflow = join(all(platform, "/id", "/state"), text(member, "workflow", "/name"), all(member, "/path"))

	discussion = join(
		all(platform, "/id", "/number", "/state", "/locked", "/author_association", "/created_at", "/updated_at", "/category/id"),
		text(byAuthor, "title", "/title"), text(byAuthor, "body", "/body"), use("/user", user),
		text(member, "category", "/category/name"),
	)

	// common stands in every kind.
	common = join(
		all(platform, "/action"), use("/repository", repository), use("/sender", user),
		use("/organization", organization), use("/installation", installation),
	)
)
