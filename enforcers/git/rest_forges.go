package git

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gatehouse/enforcers/door"
)

// APIs that Host.Provider names besides GitHub's.
const (
	GitLab = "gitlab"
	Gitea  = "gitea"
)

// forge is what may be read through the API of a host whose credential nobody
// narrowed to a repository: closed lists alone stand between the session and
// whatever else its owner may see, so both the paths and the keys of queries are
// listed whole (M-11, EG-85).
type forge struct {
	itself  bool // what the API says of the repository itself
	paths   []template
	keys    map[string]bool // of a query; a key that names another project is none of them
	repeats map[string]bool // keys that repeat what the path says, as in links of the API's own: they are not sent on
}

// template is a path below a repository: * is one segment in plain letters, + one
// that may be percent-encoded (a file's path or a branch), ** the rest.
type template []string

func templates(lines string) []template {
	var out []template
	for _, line := range strings.Fields(lines) {
		out = append(out, strings.Split(line, "/"))
	}
	return out
}

// forges are the known ones. Not in them: a project of GitLab's itself, which shows
// a maintainer the token of its runners, hooks, keys, environments, variables,
// runners, members, protected branches, forks, archives, artifacts, and every
// list that other projects stand in (links, related and closed issues, bridges). Nor
// are keys that have text rendered: what names an issue of another project becomes
// a link that holds the title.
var forges = map[string]forge{
	GitLab: {
		paths: templates(`
			languages labels labels/* milestones milestones/* releases releases/+
			repository/tree repository/compare repository/merge_base repository/contributors
			repository/files/+ repository/files/+/raw repository/files/+/blame repository/blobs/* repository/blobs/*/raw
			repository/branches repository/branches/+ repository/tags repository/tags/+
			repository/commits repository/commits/+ repository/commits/+/diff repository/commits/+/refs repository/commits/+/comments repository/commits/+/statuses repository/commits/+/merge_requests
			merge_requests merge_requests/* merge_requests/*/commits merge_requests/*/changes merge_requests/*/diffs merge_requests/*/raw_diffs merge_requests/*/versions merge_requests/*/versions/*
			merge_requests/*/notes merge_requests/*/notes/* merge_requests/*/discussions merge_requests/*/discussions/* merge_requests/*/pipelines merge_requests/*/approvals merge_requests/*/reviewers
			issues issues/* issues/*/notes issues/*/notes/* issues/*/discussions issues/*/discussions/*
			pipelines pipelines/* pipelines/*/jobs pipelines/*/test_report pipelines/*/test_report_summary jobs jobs/* jobs/*/trace`),
		keys: set(`
			page per_page pagination page_token cursor id_after order_by sort
			ref ref_name path recursive since until author all with_stats first_parent follow from to straight unidiff refs[] type stats
			state labels milestone scope scope[] search in view iids[] author_id author_username assignee_id assignee_username reviewer_id reviewer_username
			created_after created_before updated_after updated_before source_branch target_branch draft wip confidential due_date issue_type
			status source sha username name include_retried with_labels_details with_counts activity_filter regex`),
		repeats: set(`id merge_request_iid issue_iid noteable_id pipeline_id`),
	},
	Gitea: {
		itself: true,
		paths: templates(`
			languages topics labels labels/* milestones milestones/* assignees
			branches branches/** tags tags/* contents contents/** raw/** compare/**
			commits commits/*/status commits/*/statuses statuses/* git/commits/* git/trees/* git/blobs/* git/refs git/refs/** git/tags/*
			issues issues/* issues/*/comments issues/comments issues/comments/* issues/*/labels
			pulls pulls/* pulls/*/commits pulls/*/files pulls/*/reviews pulls/*/reviews/* pulls/*/reviews/*/comments
			releases releases/* releases/tags/* releases/latest actions/tasks`),
		keys: set(`
			page limit ref sha path stat verification files not since until before recursive per_page
			state type labels milestones milestone q created_by assigned_by mentioned_by sort poster base_branch whitespace skip-to draft pre-release`),
	},
}

// listed reports whether a path below a repository is one that may be read.
func (f forge) listed(tail string) bool {
	if tail == "" {
		return f.itself
	}
	segments := strings.Split(tail, "/")
	return slices.ContainsFunc(f.paths, func(t template) bool { return t.match(segments) })
}

func (t template) match(segments []string) bool {
	for i, want := range t {
		if i >= len(segments) || segments[i] == "" {
			return false
		}
		switch want {
		case "**":
			// A colon leads into somebody else's fork: compare/main...THEM:BRANCH.
			return !strings.ContainsAny(strings.Join(segments[i:], "/"), "%:")
		case "*":
			if strings.ContainsAny(segments[i], "%:") {
				return false
			}
		case "+":
		default:
			if segments[i] != want {
				return false
			}
		}
	}
	return len(t) == len(segments)
}

// query returns a query as it is sent, and false when something in it is not
// listed. Some servers split at a semicolon too, so none may stand there.
func (f forge) query(raw, id string) (string, bool) {
	if raw == "" {
		return "", true
	}
	if strings.Contains(raw, ";") {
		return "", false
	}
	var kept []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(name)
		switch {
		case err != nil:
			return "", false
		case f.repeats[key]:
			if key == "id" && value != id {
				return "", false
			}
		case !f.keys[key]:
			return "", false
		default:
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&"), true
}

// gitLabPlace reads a path of GitLab's API below its root. A project stands in it
// by its number, or by its path percent-encoded in one segment. It is sent by its
// number, which is nobody else's after a rename.
func (h *host) gitLabPlace(rest string) place {
	parts := strings.SplitN(strings.TrimPrefix(rest, "/"), "/", 3)
	if len(parts) < 2 || parts[0] != "projects" {
		return place{code: CodeAPIPlace}
	}
	r, ok := h.ids[parts[1]]
	if owner, name, named := strings.Cut(parts[1], "%2F"); named {
		at, bad := canonical(owner, name)
		if r, ok = h.by[at]; bad {
			ok = false
		}
	}
	if !ok {
		return place{code: CodeAPIRepository}
	}
	return place{repository: r, path: h.APIPath + "/projects/" + r.ID, tail: strings.Join(parts[2:], "/")}
}

// forgeHeaders are the fields of a request to such an API that are sent on: to
// act as somebody else takes one field more.
var forgeHeaders = []string{"Accept", "Accept-Language", "If-Modified-Since", "If-None-Match", "User-Agent"}

// takeSudo takes what is not sent on out of a request's header, and reports
// whether it asks to act as another user: a credential of its own, so to say.
func takeSudo(r *door.Request) bool {
	_, sudo := r.Header["Sudo"]
	for name := range r.Header {
		if !slices.Contains(forgeHeaders, http.CanonicalHeaderKey(name)) {
			delete(r.Header, name)
		}
	}
	for pair := range strings.SplitSeq(r.Query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(name); err == nil && strings.EqualFold(key, "sudo") {
			sudo = true
		}
	}
	return sudo
}
