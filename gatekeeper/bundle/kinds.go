package bundle

import "slices"

// Kind is what Gatehouse knows of one kind of event: which names are facts,
// where its text stands, and which of the text a session is shown when the
// bundle does not say.
type Kind struct {
	Facts   []string // names that where, templates and keys may use
	Text    []string // JSON pointers of values that somebody wrote
	Deliver []string // default of session.deliver, a part of Text
}

var (
	githubFacts = []string{"repository.id", "repository.visibility", "repository.owner.id", "organization.id", "installation.id", "sender.id", "sender.type"}
	githubText  = []string{"/repository/full_name", "/repository/name", "/repository/description", "/repository/default_branch", "/sender/login", "/organization/login"}
)

// kinds holds the kinds whose facts a source states; of any other kind nothing
// is known, so nothing of it is shown and no fact of it can be named.
var kinds = map[string]map[string]Kind{
	"github": {
		"workflow_run": {
			Facts: slices.Concat(githubFacts, []string{
				"run_id", "run_attempt", "workflow_id", "event", "status", "conclusion", "head_sha", "head_repository.id", "pull_requests", "fork",
			}),
			Text: slices.Concat(githubText, []string{
				"/workflow_run/name", "/workflow_run/head_branch", "/workflow_run/display_title", "/workflow_run/path", "/workflow_run/head_commit/message", "/workflow_run/actor/login",
			}),
			Deliver: []string{"/workflow_run/head_branch", "/workflow_run/name"},
		},
		"issue_comment": {
			Facts: slices.Concat(githubFacts, []string{
				"issue.id", "issue.number", "issue.state", "issue.pull_request", "comment.id", "labels", "command",
			}),
			Text: slices.Concat(githubText, []string{
				"/issue/title", "/issue/body", "/comment/body", "/issue/user/login", "/comment/user/login", "/issue/labels/*/name",
			}),
			Deliver: []string{"/comment/body", "/issue/body", "/issue/title"},
		},
	},
}

// KindOf returns what is known of a kind, the zero Kind if nothing.
func KindOf(source, kind string) Kind { return kinds[source][kind] }
