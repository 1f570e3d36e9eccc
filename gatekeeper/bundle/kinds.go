package bundle

// Vocabulary is what a source states about one kind of event: which names are
// facts, and where text stands. Lint judges names by it; the source's own
// tables are the only truth, so cmd takes it from them.
type Vocabulary struct {
	Facts    []string // names that where, templates and keys may use
	Text     []string // JSON pointers of values that somebody wrote
	Passages []string // the part of Text that can be delivered
}

// deliverByDefault is what a session is shown when its bundle does not say: the
// text a person would read first. Of any other kind nothing is shown.
var deliverByDefault = map[string]map[string][]string{
	"github": {
		"workflow_run":                {"/workflow_run/head_branch", "/workflow_run/name"},
		"issues":                      {"/issue/body", "/issue/title"},
		"issue_comment":               {"/comment/body", "/issue/body", "/issue/title"},
		"pull_request":                {"/pull_request/body", "/pull_request/head/ref", "/pull_request/title"},
		"pull_request_review":         {"/pull_request/head/ref", "/pull_request/title", "/review/body"},
		"pull_request_review_comment": {"/comment/body", "/comment/diff_hunk", "/comment/path", "/pull_request/head/ref", "/pull_request/title"},
		"check_run":                   {"/check_run/name", "/check_run/output/summary", "/check_run/output/title"},
	},
	"cron": {},
}

// DefaultDeliver returns the text pointers that are delivered of one kind when
// the bundle lists none, sorted.
func DefaultDeliver(source, kind string) []string { return deliverByDefault[source][kind] }
