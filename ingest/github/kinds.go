package github

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// kinds returns the kinds with rows of their own: docs/sources/github.md is the
// same table in words.
func kinds() map[string]*kind {
	return map[string]*kind{
		"ping":                        {has: []string{"/hook"}, rows: ping, facts: pingFacts, entity: entity{kind: "hook", id: "/hook_id"}},
		"workflow_run":                workflowRun(),
		"workflow_job":                workflowJob(),
		"workflow_dispatch":           workflowDispatch(),
		"repository_dispatch":         repositoryDispatch(),
		"issues":                      issues(),
		"issue_comment":               issueComment(),
		"sub_issues":                  subIssues(),
		"pull_request":                pull("/pull_request"),
		"pull_request_review":         pullReview(),
		"pull_request_review_comment": pullComment(),
		"pull_request_review_thread":  pullThread(),
		"commit_comment":              commitComment(),
		"discussion":                  discussions(),
		"discussion_comment":          discussionComment(),
		"push":                        push(),
		"create":                      created(),
		"delete":                      refs("/master_branch"),
		"fork":                        {has: []string{"/forkee"}, rows: join(use("/forkee", forkee)), entity: entity{kind: "repository", id: "/forkee/id"}},
		"star":                        {rows: all(platform, "/starred_at"), not: []string{"/forkee", "/issue", "/pull_request"}},
		"status":                      status(),
		"check_run":                   checkRun(),
		"check_suite":                 checkSuite(),
		"deployment_status":           deploymentStatus(),
		"merge_group":                 mergeGroup(),
		"release":                     release(),
		"gollum":                      {has: []string{"/pages"}, rows: gollum, time: ""},
		"security_advisory":           {has: []string{"/security_advisory"}, rows: join(use("/security_advisory", advisory)), facts: advisoryFacts("/security_advisory")},
		"dependabot_alert":            dependabot(),
		"secret_scanning_alert":       secretScanning(),
		"installation":                installations(),
		"installation_repositories":   installationRepositories(),
		"github_app_authorization":    {not: []string{"/repository", "/installation"}, extra: authorizationRevoked},
		"repository":                  {not: []string{"/issue", "/pull_request", "/client_payload"}, write: true, entity: entity{id: "/repository/id"}, extra: repositoryStopped},
		"member":                      {has: []string{"/member"}, write: true, rows: join(use("/member", user)), extra: memberRemoved("/member/id")},
		"membership":                  {has: []string{"/member", "/team"}, rows: all(platform, "/scope"), extra: memberRemoved("/member/id")},
		"organization":                {not: []string{"/repository"}, rows: all(platform, "/membership/role"), extra: memberRemoved("/membership/user/id")},
	}
}

// fact is a line of a fact table.
func fact(name, path string, form ingest.Form) ingest.Fact {
	return ingest.Fact{Name: name, Path: path, Form: form}
}

var (
	ping      = join(all(platform, "/hook_id", "/hook/id", "/hook/type", "/hook/active", "/hook/events"), all(credential, "/hook/config/secret"))
	pingFacts = []ingest.Fact{fact("hook.id", "/hook_id", ingest.FormID), fact("hook.type", "/hook/type", ingest.FormEnum("Repository", "Organization", "App"))}

	// forkee is somebody else's repository.
	forkee = join(all(platform, "/id", "/private"), text(outsider, "forkee", "/full_name"), text(outsider, "forkee_description", "/description"))

	gollum = join(all(platform, "/pages/*/action", "/pages/*/sha"), text(byEditor, "page", "/pages/*/title"), text(byEditor, "page_summary", "/pages/*/summary"))
)

func workflowRun() *kind {
	return &kind{
		has: []string{"/workflow_run", "/repository"}, not: []string{"/workflow_job"},
		rows: join(
			use("/workflow_run", join(
				all(platform, "/id", "/run_number", "/run_attempt", "/workflow_id", "/check_suite_id", "/event", "/status", "/conclusion", "/head_sha",
					"/created_at", "/updated_at", "/run_started_at"),
				// On a pull request these come out of the head branch's own files.
				text(byHead, "name", "/name"), all(byHead, "/path"),
				text(byHead, "head_branch", "/head_branch"),
				// Whatever triggered the run: an issue's title, a commit's first line.
				text(outsider, "display_title", "/display_title"),
				use("/head_commit", commit), use("/actor", user), use("/triggering_actor", user),
				use("/head_repository", headRepository), use("/repository", all(platform, "/id")), use("/pull_requests/*", pullRef),
			)),
			use("/workflow", workflow),
		),
		facts: []ingest.Fact{
			fact("run_id", "/workflow_run/id", ingest.FormID),
			fact("run_number", "/workflow_run/run_number", ingest.FormCount),
			fact("run_attempt", "/workflow_run/run_attempt", ingest.FormCount),
			fact("workflow_id", "/workflow_run/workflow_id", ingest.FormID),
			fact("event", "/workflow_run/event", ingest.FormToken),
			fact("status", "/workflow_run/status", ingest.FormToken),
			fact("conclusion", "/workflow_run/conclusion", ingest.FormToken),
			fact("head_sha", "/workflow_run/head_sha", ingest.FormSHA),
			fact("head_repository.id", "/workflow_run/head_repository/id", ingest.FormID),
			fact("actor.id", "/workflow_run/actor/id", ingest.FormID),
			fact("triggering_actor.id", "/workflow_run/triggering_actor/id", ingest.FormID),
		},
		entity: entity{id: "/workflow_run/id"},
		time:   "/workflow_run/updated_at",
		fork:   func(doc *ingest.Doc) bool { return differs(doc, "/workflow_run/head_repository/id", "/repository/id") },
		extra: func(v *view, e *event.Event) {
			e.Facts["branch_hash"] = branchHash(v.doc, "/workflow_run/head_branch")
			samePulls(v.doc, e, "/workflow_run/pull_requests")
		},
	}
}

// differs is the fork rule: true when either id is missing or they are not the
// same. Repositories are compared by id, never by name (IN-15).
func differs(doc *ingest.Doc, head, base string) bool {
	h, b := doc.At(head).ID(), doc.At(base).ID()
	return h == "" || b == "" || h != b
}

// samePulls lists the numbers of the pull requests whose head and base are both
// this repository.
func samePulls(doc *ingest.Doc, e *event.Event, path string) {
	repo := doc.At("/repository/id").ID()
	for i, pr := range doc.At(path).Items() {
		if i == 100 {
			break
		}
		head, base, number := pr.At("/head/repo/id").ID(), pr.At("/base/repo/id").ID(), pr.Get("number").ID()
		if repo == "" || head != repo || base != repo || number == "" {
			e.Anomalies = append(e.Anomalies, "foreign_pull_request")
			continue
		}
		e.Lists["pull_requests"] = append(e.Lists["pull_requests"], number)
	}
}

func workflowJob() *kind {
	return &kind{
		has: []string{"/workflow_job", "/repository"}, not: []string{"/workflow_run"},
		rows: join(use("/workflow_job", join(
			all(platform, "/id", "/run_id", "/run_attempt", "/status", "/conclusion", "/head_sha", "/started_at", "/completed_at",
				"/steps/*/status", "/steps/*/conclusion", "/steps/*/number", "/runner_id"),
			// The payload does not name the head repository: assume the lowest.
			text(outsider, "name", "/name"), text(outsider, "workflow", "/workflow_name"), text(outsider, "head_branch", "/head_branch"),
			text(outsider, "step", "/steps/*/name"), all(outsider, "/labels"), all(member, "/runner_name", "/runner_group_name"),
		))),
		facts: []ingest.Fact{
			fact("job_id", "/workflow_job/id", ingest.FormID),
			fact("run_id", "/workflow_job/run_id", ingest.FormID),
			fact("run_attempt", "/workflow_job/run_attempt", ingest.FormCount),
			fact("status", "/workflow_job/status", ingest.FormToken),
			fact("conclusion", "/workflow_job/conclusion", ingest.FormToken),
			fact("head_sha", "/workflow_job/head_sha", ingest.FormSHA),
		},
		entity: entity{id: "/workflow_job/id"},
		time:   "/workflow_job/completed_at",
	}
}

func workflowDispatch() *kind {
	return &kind{
		has: []string{"/ref", "/repository"}, not: []string{"/client_payload", "/ref_type", "/commits", "/deployment"},
		// A member typed the inputs, but inputs are often pasted.
		rows:  join(text(contributor, "inputs", "/inputs"), text(member, "ref", "/ref"), text(member, "workflow", "/workflow")),
		write: true,
	}
}

func repositoryDispatch() *kind {
	return &kind{
		has: []string{"/client_payload", "/repository"},
		// IN-20: the caller's token may write; what it carries is anybody's. Keys
		// are as untrusted as values, so the payload is one text.
		rows:  join(text(outsider, "client_payload", "/client_payload"), text(outsider, "event_type", "/action"), text(member, "branch", "/branch")),
		write: true, freeAction: true,
	}
}

func issueFacts(at string) []ingest.Fact {
	return []ingest.Fact{
		fact("issue.id", at+"/id", ingest.FormID),
		fact("number", at+"/number", ingest.FormCount),
		fact("state", at+"/state", ingest.FormToken),
		fact("locked", at+"/locked", ingest.FormBool),
		fact("author.id", at+"/user/id", ingest.FormID),
	}
}

func issues() *kind {
	return &kind{
		has: []string{"/issue", "/repository"}, not: []string{"/comment", "/pull_request", "/sub_issue"},
		rows:    join(use("/issue", issue), use("/label", label), text(byAuthorOfOld, "old_title", "/changes/title/from"), text(byAuthorOfOld, "old_body", "/changes/body/from")),
		facts:   append(issueFacts("/issue"), fact("label.id", "/label/id", ingest.FormID)),
		lists:   []list{{"labels", "/issue/labels", "id"}},
		levels:  []level{{"author.level", "/issue"}},
		entity:  entity{kind: "issue", id: "/issue/id", number: "/issue/number"},
		authors: []string{"/issue"}, main: "/issue", time: "/issue/updated_at",
	}
}

func issueComment() *kind {
	return &kind{
		has: []string{"/issue", "/comment", "/repository"}, not: []string{"/pull_request", "/review", "/discussion"},
		rows: join(use("/issue", issue), use("/comment", comment), text(byAuthorOfOld, "old_comment", "/changes/body/from")),
		facts: append(issueFacts("/issue"),
			fact("comment.id", "/comment/id", ingest.FormID),
			fact("comment.author.id", "/comment/user/id", ingest.FormID)),
		lists:   []list{{"labels", "/issue/labels", "id"}},
		levels:  []level{{"author.level", "/issue"}, {"comment.author.level", "/comment"}},
		entity:  entity{kind: "issue", id: "/issue/id", number: "/issue/number", pull: "/issue/pull_request"},
		authors: []string{"/issue", "/comment"}, main: "/comment", time: "/comment/updated_at",
		extra: func(v *view, e *event.Event) {
			e.Facts["is_pull_request"] = "false"
			if v.doc.At("/issue/pull_request").Object() {
				e.Facts["is_pull_request"] = "true"
			}
			command(v, e, "/comment")
		},
	}
}

func subIssues() *kind {
	return &kind{
		has: []string{"/parent_issue", "/sub_issue"}, not: []string{"/issue"},
		rows: join(all(platform, "/parent_issue_id", "/sub_issue_id"), use("/parent_issue", issue), use("/sub_issue", issue),
			use("/sub_issue_repo", all(platform, "/id", "/private"))),
		facts:   append(issueFacts("/sub_issue"), fact("parent.id", "/parent_issue_id", ingest.FormID), fact("sub_issue.repository.id", "/sub_issue_repo/id", ingest.FormID)),
		levels:  []level{{"author.level", "/sub_issue"}, {"parent.author.level", "/parent_issue"}},
		entity:  entity{kind: "issue", id: "/sub_issue/id", number: "/sub_issue/number"},
		authors: []string{"/sub_issue", "/parent_issue"},
	}
}

// forkOf is the fork rule of a pull request.
func forkOf(doc *ingest.Doc) bool {
	return differs(doc, "/pull_request/head/repo/id", "/pull_request/base/repo/id") || differs(doc, "/pull_request/base/repo/id", "/repository/id")
}

// pull is a kind that is about a pull request.
func pull(main string) *kind {
	return &kind{
		has: []string{"/pull_request", "/number", "/repository"}, not: []string{"/comment", "/review", "/thread", "/issue"},
		rows: join(all(platform, "/number", "/before", "/after"), use("/pull_request", pullRequest), use("/label", label),
			text(byAuthorOfOld, "old_title", "/changes/title/from"), text(byAuthorOfOld, "old_body", "/changes/body/from")),
		facts: []ingest.Fact{
			fact("pull_request.id", "/pull_request/id", ingest.FormID),
			fact("number", "/pull_request/number", ingest.FormCount),
			fact("state", "/pull_request/state", ingest.FormToken),
			fact("draft", "/pull_request/draft", ingest.FormBool),
			fact("merged", "/pull_request/merged", ingest.FormBool),
			fact("locked", "/pull_request/locked", ingest.FormBool),
			fact("head_sha", "/pull_request/head/sha", ingest.FormSHA),
			fact("base_sha", "/pull_request/base/sha", ingest.FormSHA),
			fact("head_repository.id", "/pull_request/head/repo/id", ingest.FormID),
			fact("author.id", "/pull_request/user/id", ingest.FormID),
			fact("label.id", "/label/id", ingest.FormID),
		},
		lists:   []list{{"labels", "/pull_request/labels", "id"}},
		levels:  []level{{"author.level", "/pull_request"}},
		entity:  entity{kind: "pull_request", id: "/pull_request/id", number: "/pull_request/number"},
		authors: []string{"/pull_request"}, main: main, time: "/pull_request/updated_at", fork: forkOf,
		extra: baseIsDefault,
	}
}

func baseIsDefault(v *view, e *event.Event) {
	base, ok := v.doc.At("/pull_request/base/ref").Text()
	e.Facts["base_is_default"] = "false"
	if ok && v.doc.At("/repository/default_branch").Is(base) {
		e.Facts["base_is_default"] = "true"
	}
}

func pullReview() *kind {
	k := pull("/review")
	k.has, k.not = []string{"/review", "/pull_request", "/repository"}, []string{"/comment", "/thread", "/issue"}
	k.rows = join(use("/pull_request", pullRequest), use("/review", join(
		all(platform, "/id", "/state", "/submitted_at", "/commit_id", "/author_association"), text(byAuthor, "review", "/body"), use("/user", user),
	)), text(byAuthorOfOld, "old_review", "/changes/body/from"))
	k.facts = append(k.facts, fact("review.id", "/review/id", ingest.FormID), fact("review.state", "/review/state", ingest.FormToken))
	k.levels = append(k.levels, level{"review.author.level", "/review"})
	k.authors = []string{"/pull_request", "/review"}
	k.time = "/review/submitted_at"
	return k
}

func pullComment() *kind {
	k := pull("/comment")
	k.has, k.not = []string{"/comment", "/pull_request", "/repository"}, []string{"/review", "/thread", "/issue"}
	k.rows = join(use("/pull_request", pullRequest), use("/comment", join(comment,
		text(byAuthor, "path", "/path"), text(byHead, "diff_hunk", "/diff_hunk"), all(platform, "/line", "/side", "/original_commit_id"))),
		text(byAuthorOfOld, "old_comment", "/changes/body/from"))
	k.facts = append(k.facts, fact("comment.id", "/comment/id", ingest.FormID), fact("comment.author.id", "/comment/user/id", ingest.FormID))
	k.levels = append(k.levels, level{"comment.author.level", "/comment"})
	k.authors = []string{"/pull_request", "/comment"}
	k.time = "/comment/updated_at"
	k.extra = func(v *view, e *event.Event) {
		baseIsDefault(v, e)
		command(v, e, "/comment")
	}
	return k
}

func pullThread() *kind {
	k := pull("")
	k.has, k.not = []string{"/thread", "/pull_request", "/repository"}, []string{"/comment", "/review", "/issue"}
	k.rows = join(use("/pull_request", pullRequest), use("/thread/comments/*", comment))
	return k
}
