package github

import (
	"gatehouse/ingest"
	"gatehouse/internal/event"
)

func commitComment() *kind {
	return &kind{
		has: []string{"/comment", "/repository"}, not: []string{"/issue", "/pull_request", "/discussion", "/alert"},
		rows:    join(use("/comment", join(comment, text(byAuthor, "path", "/path")))),
		facts:   []ingest.Fact{fact("comment.id", "/comment/id", ingest.FormID), fact("commit_id", "/comment/commit_id", ingest.FormSHA)},
		levels:  []level{{"comment.author.level", "/comment"}},
		entity:  entity{kind: "commit", id: "/comment/commit_id"},
		authors: []string{"/comment"}, main: "/comment", time: "/comment/updated_at",
		extra: func(v *view, e *event.Event) { command(v, e, "/comment") },
	}
}

func discussionFacts() []ingest.Fact {
	return []ingest.Fact{
		fact("discussion.id", "/discussion/id", ingest.FormID),
		fact("number", "/discussion/number", ingest.FormCount),
		fact("state", "/discussion/state", ingest.FormToken),
		fact("category.id", "/discussion/category/id", ingest.FormID),
		fact("author.id", "/discussion/user/id", ingest.FormID),
	}
}

func discussions() *kind {
	return &kind{
		has: []string{"/discussion", "/repository"}, not: []string{"/comment"},
		rows:    join(use("/discussion", discussion)),
		facts:   discussionFacts(),
		levels:  []level{{"author.level", "/discussion"}},
		entity:  entity{id: "/discussion/id", number: "/discussion/number"},
		authors: []string{"/discussion"}, main: "/discussion", time: "/discussion/updated_at",
	}
}

func discussionComment() *kind {
	return &kind{
		has: []string{"/discussion", "/comment", "/repository"}, not: []string{"/issue", "/pull_request"},
		rows:    join(use("/discussion", discussion), use("/comment", comment)),
		facts:   append(discussionFacts(), fact("comment.id", "/comment/id", ingest.FormID)),
		levels:  []level{{"author.level", "/discussion"}, {"comment.author.level", "/comment"}},
		entity:  entity{kind: "discussion", id: "/discussion/id", number: "/discussion/number"},
		authors: []string{"/discussion", "/comment"}, main: "/comment", time: "/comment/updated_at",
		extra: func(v *view, e *event.Event) { command(v, e, "/comment") },
	}
}

func push() *kind {
	return &kind{
		has: []string{"/ref", "/before", "/after", "/repository"}, not: []string{"/client_payload", "/workflow"},
		rows: join(
			all(platform, "/before", "/after", "/created", "/deleted", "/forced", "/compare"),
			text(bySender, "ref", "/ref"), text(member, "pusher", "/pusher/name"), all(member, "/pusher/email"),
			use("/commits/*", join(commit, all(outsider, "/added", "/removed", "/modified"))),
			use("/head_commit", commit),
		),
		facts: []ingest.Fact{
			fact("before", "/before", ingest.FormSHA), fact("head_sha", "/after", ingest.FormSHA),
			fact("created", "/created", ingest.FormBool), fact("deleted", "/deleted", ingest.FormBool), fact("forced", "/forced", ingest.FormBool),
		},
		entity: entity{kind: "ref"}, write: true,
		extra: func(v *view, e *event.Event) {
			refEntity(v, e)
			e.Facts["ref_is_default"] = "false"
			if name, ok := v.doc.At("/repository/default_branch").Text(); ok && v.doc.At("/ref").Is("refs/heads/"+name) {
				e.Facts["ref_is_default"] = "true"
			}
		},
	}
}

// refs are create and delete, which differ by one field.
func refs(not ...string) *kind {
	return &kind{
		has: []string{"/ref", "/ref_type", "/repository"}, not: not,
		rows:   join(all(platform, "/ref_type", "/pusher_type"), text(bySender, "ref", "/ref")),
		facts:  []ingest.Fact{fact("ref_type", "/ref_type", ingest.FormEnum("branch", "tag"))},
		entity: entity{kind: "ref"}, write: true,
		extra: refEntity,
	}
}

func created() *kind {
	k := refs()
	k.has = append(k.has, "/master_branch")
	k.rows = join(k.rows, all(member, "/master_branch"))
	return k
}

// refEntity names a ref by its hash, because its name is text.
func refEntity(v *view, e *event.Event) {
	hash := branchHash(v.doc, "/ref")
	e.Facts["branch_hash"] = hash
	e.Entity.ID = hash
	e.EntityPath += "/ref/" + hash
}

func status() *kind {
	return &kind{
		has: []string{"/sha", "/state", "/context", "/repository"},
		rows: join(all(platform, "/id", "/sha", "/state", "/created_at", "/updated_at", "/commit/sha", "/branches/*/commit/sha"),
			// Any token with access to statuses may have written these.
			text(outsider, "context", "/context"), text(outsider, "description", "/description"), all(outsider, "/target_url"),
			text(outsider, "commit_message", "/commit/commit/message"), all(outsider, "/commit/commit/author", "/commit/commit/committer"),
			text(member, "branch", "/branches/*/name")),
		facts: []ingest.Fact{fact("status.id", "/id", ingest.FormID), fact("head_sha", "/sha", ingest.FormSHA), fact("state", "/state", ingest.FormToken)},
		time:  "/updated_at", entity: entity{kind: "commit", id: "/sha"},
	}
}

func checkRun() *kind {
	return &kind{
		has: []string{"/check_run", "/repository"}, not: []string{"/check_suite"},
		rows: join(
			use("/check_run", join(
				all(platform, "/id", "/status", "/conclusion", "/head_sha", "/started_at", "/completed_at", "/output/annotations_count"),
				text(byApp, "name", "/name"), text(byApp, "output_title", "/output/title"), text(byApp, "output_summary", "/output/summary"),
				text(byApp, "output_text", "/output/text"), all(byApp, "/external_id", "/details_url"),
				use("/check_suite", suite), use("/app", app), use("/pull_requests/*", pullRef),
			)),
			text(outsider, "requested_action", "/requested_action/identifier"),
		),
		facts: []ingest.Fact{
			fact("check_run.id", "/check_run/id", ingest.FormID), fact("status", "/check_run/status", ingest.FormToken),
			fact("conclusion", "/check_run/conclusion", ingest.FormToken), fact("head_sha", "/check_run/head_sha", ingest.FormSHA),
			fact("app.id", "/check_run/app/id", ingest.FormID),
		},
		entity: entity{id: "/check_run/id"}, time: "/check_run/completed_at",
		extra: func(v *view, e *event.Event) { samePulls(v.doc, e, "/check_run/pull_requests") },
	}
}

func checkSuite() *kind {
	return &kind{
		has: []string{"/check_suite", "/repository"}, not: []string{"/check_run"},
		rows: join(use("/check_suite", join(suite, use("/head_commit", commit)))),
		facts: []ingest.Fact{
			fact("check_suite.id", "/check_suite/id", ingest.FormID), fact("status", "/check_suite/status", ingest.FormToken),
			fact("conclusion", "/check_suite/conclusion", ingest.FormToken), fact("head_sha", "/check_suite/head_sha", ingest.FormSHA),
			fact("app.id", "/check_suite/app/id", ingest.FormID),
		},
		entity: entity{id: "/check_suite/id"}, time: "/check_suite/updated_at",
		extra: func(v *view, e *event.Event) { samePulls(v.doc, e, "/check_suite/pull_requests") },
	}
}

func deploymentStatus() *kind {
	return &kind{
		has: []string{"/deployment_status", "/deployment", "/repository"},
		rows: join(
			all(platform, "/deployment_status/id", "/deployment_status/state", "/deployment/id", "/deployment/sha"),
			// Any token with access to deployments may have written these.
			text(outsider, "description", "/deployment_status/description"), text(outsider, "environment", "/deployment_status/environment"),
			all(outsider, "/deployment/payload"), text(outsider, "ref", "/deployment/ref"), all(outsider, "/deployment/task"),
		),
		facts: []ingest.Fact{
			fact("deployment.id", "/deployment/id", ingest.FormID), fact("state", "/deployment_status/state", ingest.FormToken),
			fact("head_sha", "/deployment/sha", ingest.FormSHA),
		},
		entity: entity{kind: "deployment", id: "/deployment/id"}, time: "/deployment_status/updated_at", write: true,
	}
}

func mergeGroup() *kind {
	return &kind{
		has: []string{"/merge_group", "/repository"},
		rows: join(all(platform, "/merge_group/head_sha", "/merge_group/base_sha"), text(member, "base_ref", "/merge_group/base_ref"),
			text(member, "head_ref", "/merge_group/head_ref"), use("/merge_group/head_commit", commit)),
		facts: []ingest.Fact{fact("head_sha", "/merge_group/head_sha", ingest.FormSHA), fact("base_sha", "/merge_group/base_sha", ingest.FormSHA)},
		write: true, entity: entity{id: "/merge_group/head_sha"},
	}
}

func release() *kind {
	return &kind{
		has: []string{"/release", "/repository"},
		rows: join(use("/release", join(all(platform, "/id", "/draft", "/prerelease", "/published_at"),
			text(member, "tag", "/tag_name"), text(member, "title", "/name"), text(member, "body", "/body"),
			all(member, "/assets", "/target_commitish"), use("/author", user)))),
		facts: []ingest.Fact{fact("release.id", "/release/id", ingest.FormID), fact("draft", "/release/draft", ingest.FormBool),
			fact("prerelease", "/release/prerelease", ingest.FormBool)},
		entity: entity{id: "/release/id"}, time: "/release/published_at", write: true,
	}
}

func advisoryFacts(at string) []ingest.Fact {
	return []ingest.Fact{fact("ghsa_id", at+"/ghsa_id", ingest.FormID), fact("severity", at+"/severity", ingest.FormToken)}
}

func dependabot() *kind {
	return &kind{
		has: []string{"/alert", "/alert/security_advisory", "/repository"},
		rows: join(use("/alert", join(all(platform, "/number", "/state", "/created_at", "/updated_at", "/dependency/scope", "/dependency/package/ecosystem"),
			text(contributor, "package", "/dependency/package/name"), text(member, "manifest", "/dependency/manifest_path"),
			use("/security_advisory", advisory)))),
		facts: append(advisoryFacts("/alert/security_advisory"), fact("number", "/alert/number", ingest.FormCount), fact("state", "/alert/state", ingest.FormToken),
			fact("ecosystem", "/alert/dependency/package/ecosystem", ingest.FormToken)),
		entity: entity{number: "/alert/number"}, time: "/alert/updated_at",
	}
}

func secretScanning() *kind {
	return &kind{
		has: []string{"/alert", "/alert/secret_type", "/repository"},
		rows: join(all(platform, "/alert/number", "/alert/secret_type", "/alert/resolution", "/alert/created_at"),
			all(credential, "/alert/secret")),
		facts:  []ingest.Fact{fact("number", "/alert/number", ingest.FormCount), fact("secret_type", "/alert/secret_type", ingest.FormToken)},
		entity: entity{number: "/alert/number"},
	}
}

func installations() *kind {
	return &kind{
		has: []string{"/installation", "/installation/account"}, not: []string{"/repositories_added", "/repository"},
		rows: join(use("/installation", all(platform, "/app_id", "/account/id", "/account/type", "/repository_selection", "/permissions", "/events")),
			use("/requester", user), use("/repositories/*", join(all(platform, "/id", "/private"), text(member, "repository", "/full_name")))),
		facts: []ingest.Fact{fact("app.id", "/installation/app_id", ingest.FormID), fact("account.id", "/installation/account/id", ingest.FormID)},
		lists: []list{{"repositories", "/repositories", "id"}}, entity: entity{id: "/installation/id"},
		// IN-23: authority goes away with the installation.
		extra: func(v *view, e *event.Event) {
			if e.Action == "deleted" || e.Action == "suspend" {
				e.SetStop(event.StopInstallation, v.doc.At("/installation/id").ID())
			}
		},
	}
}

func installationRepositories() *kind {
	return &kind{
		has: []string{"/installation", "/repositories_added"}, not: []string{"/repository"},
		rows: join(use("/installation", all(platform, "/app_id", "/account/id", "/repository_selection")),
			all(platform, "/repository_selection", "/repositories_added/*/id", "/repositories_removed/*/id")),
		facts: []ingest.Fact{fact("app.id", "/installation/app_id", ingest.FormID)},
		lists: []list{{"repositories_added", "/repositories_added", "id"}, {"repositories_removed", "/repositories_removed", "id"}},
		extra: func(v *view, e *event.Event) {
			if e.Action == "removed" {
				e.SetStop(event.StopRepository, ingest.IDs(v.doc.At("/repositories_removed"), "id")...)
			}
		},
		entity: entity{kind: "installation", id: "/installation/id"},
	}
}

func authorizationRevoked(v *view, e *event.Event) {
	if e.Action == "revoked" {
		e.SetStop(event.StopMember, v.sender.Get("id").ID())
	}
}

func repositoryStopped(v *view, e *event.Event) {
	switch e.Action {
	case "privatized", "deleted", "archived", "transferred":
		e.SetStop(event.StopRepository, v.doc.At("/repository/id").ID())
	}
}

func memberRemoved(path string) func(*view, *event.Event) {
	return func(v *view, e *event.Event) {
		if e.Action == "removed" || e.Action == "member_removed" {
			e.SetStop(event.StopMember, v.doc.At(path).ID())
		}
	}
}
