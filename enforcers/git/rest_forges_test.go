//go:build linux

package git_test

import (
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/receipts"
)

// TestForges: under a rule that lists every path of its API, a host of GitLab's or
// Gitea's answers about the session's repositories alone, and only reads. Its
// credential opens whatever its owner may do: nothing but these lists says no.
func TestForges(t *testing.T) {
	w := newWorld(t)
	const (
		place, other, write, foreign = git.CodeAPIPlace, git.CodeAPIRepository, git.CodeAPIWrite, enforcers.CodeForeignCredential
		lab, tea                     = git.GitLab, git.Gitea
	)
	for name, c := range map[string]struct {
		forge, method, path string
		sent                string // what the host saw, "" = nothing
		code                string
		field               string // of the request's header
		body                string
	}{
		"gitlab_by_id":               {forge: lab, path: "/api/v4/projects/1001/merge_requests?state=opened", sent: "GET /api/v4/projects/1001/merge_requests?state=opened"},
		"gitlab_by_path":             {forge: lab, path: "/api/v4/projects/acme%2Fshop/issues/7", sent: "GET /api/v4/projects/1001/issues/7"},
		"gitlab_by_path_in_case":     {forge: lab, path: "/api/v4/projects/ACME%2fShop/issues/7/notes", sent: "GET /api/v4/projects/1001/issues/7/notes"},
		"gitlab_sibling":             {forge: lab, path: "/api/v4/projects/1002/repository/tree?ref=main&recursive=true", sent: "GET /api/v4/projects/1002/repository/tree?ref=main&recursive=true"},
		"gitlab_file":                {forge: lab, path: "/api/v4/projects/1001/repository/files/src%2Fmain.go/raw?ref=main", sent: "GET /api/v4/projects/1001/repository/files/src%2Fmain.go/raw?ref=main"},
		"gitlab_link_of_its_own":     {forge: lab, path: "/api/v4/projects/1001/issues?id=1001&order_by=created_at&page=2", sent: "GET /api/v4/projects/1001/issues?order_by=created_at&page=2"},
		"gitlab_trace":               {forge: lab, path: "/api/v4/projects/1001/jobs/5/trace", sent: "GET /api/v4/projects/1001/jobs/5/trace"},
		"EG-85_gitlab_other":         {forge: lab, path: "/api/v4/projects/1003/repository/tree", code: other},
		"EG-85_gitlab_other_by_path": {forge: lab, path: "/api/v4/projects/acme%2Fother/repository/tree", code: other},
		"EG-85_gitlab_unlisted":      {forge: lab, path: "/api/v4/projects/acme%2Funlisted", code: other},
		"EG-85_gitlab_group":         {forge: lab, path: "/api/v4/projects/acme%2Fshop%2Fother/issues", code: other},
		"EG-85_gitlab_id_of_another": {forge: lab, path: "/api/v4/projects/1001/issues?id=1003", code: place},
		"EG-85_gitlab_compare":       {forge: lab, path: "/api/v4/projects/1001/repository/compare?from=a&to=b&from_project_id=1003", code: place},
		"EG-85_gitlab_key_encoded":   {forge: lab, path: "/api/v4/projects/1001/repository/compare?from=a&to=b&from%5fproject_id=1003", code: place},
		"EG-85_gitlab_rendered":      {forge: lab, path: "/api/v4/projects/1001/merge_requests/7?render_html=true", code: place},
		"EG-85_gitlab_rendered_list": {forge: lab, path: "/api/v4/projects/1001/releases?include_html_description=true", code: place},
		"EG-85_gitlab_semicolon":     {forge: lab, path: "/api/v4/projects/1001/repository/compare?from=a;from_project_id=1003", code: place},
		"EG-85_gitlab_in_the_body":   {forge: lab, path: "/api/v4/projects/1001/repository/compare?from=a&to=b", body: "from_project_id=1003", code: place},
		"EG-75_gitlab_sudo":          {forge: lab, path: "/api/v4/projects/1001/issues", field: "Sudo", code: foreign},
		"EG-75_gitlab_sudo_query":    {forge: lab, path: "/api/v4/projects/1001/issues?sudo=root", code: foreign},
		"EG-75_gitlab_private_token": {forge: lab, path: "/api/v4/projects/1001/issues", field: "Private-Token", code: foreign},
		"EG-75_gitlab_job_token":     {forge: lab, path: "/api/v4/projects/1001/issues?job_token=glcbt-0123456789", code: foreign},
		"EG-85_gitlab_user":          {forge: lab, path: "/api/v4/user", code: place},
		"EG-85_gitlab_projects":      {forge: lab, path: "/api/v4/projects?membership=true", code: place},
		"EG-85_gitlab_groups":        {forge: lab, path: "/api/v4/groups/acme/projects", code: place},
		"EG-85_gitlab_search":        {forge: lab, path: "/api/v4/search?scope=blobs&search=x", code: place},
		"EG-85_gitlab_graphql":       {forge: lab, method: "POST", path: "/api/graphql", body: `{"query":"{currentUser{id}}"}`, code: git.CodeGraphQLStatic},
		"gitlab_runners_token":       {forge: lab, path: "/api/v4/projects/1001", code: place},
		"gitlab_hooks":               {forge: lab, path: "/api/v4/projects/1001/hooks", code: place},
		"gitlab_keys":                {forge: lab, path: "/api/v4/projects/1001/deploy_keys", code: place},
		"gitlab_variables":           {forge: lab, path: "/api/v4/projects/1001/variables", code: place},
		"gitlab_pipeline_variables":  {forge: lab, path: "/api/v4/projects/1001/pipelines/3/variables", code: place},
		"gitlab_environments":        {forge: lab, path: "/api/v4/projects/1001/environments", code: place},
		"gitlab_runners":             {forge: lab, path: "/api/v4/projects/1001/runners", code: place},
		"gitlab_members":             {forge: lab, path: "/api/v4/projects/1001/members/all", code: place},
		"gitlab_protected":           {forge: lab, path: "/api/v4/projects/1001/protected_branches", code: place},
		"gitlab_access_tokens":       {forge: lab, path: "/api/v4/projects/1001/access_tokens", code: place},
		"gitlab_artifacts":           {forge: lab, path: "/api/v4/projects/1001/jobs/5/artifacts", code: place},
		"gitlab_archive":             {forge: lab, path: "/api/v4/projects/1001/repository/archive.zip", code: place},
		"EG-85_gitlab_links":         {forge: lab, path: "/api/v4/projects/1001/issues/7/links", code: place},
		"EG-85_gitlab_related":       {forge: lab, path: "/api/v4/projects/1001/issues/7/related_merge_requests", code: place},
		"EG-85_gitlab_forks":         {forge: lab, path: "/api/v4/projects/1001/forks", code: place},
		"gitlab_encoded_elsewhere":   {forge: lab, path: "/api/v4/projects/1001/issues%2F7", code: place},
		"EG-86_gitlab_file_write":    {forge: lab, method: "POST", path: "/api/v4/projects/1001/repository/files/x", body: `{}`, code: write},
		"EG-86_gitlab_commit_write":  {forge: lab, method: "POST", path: "/api/v4/projects/1001/repository/commits", body: `{}`, code: write},
		"gitlab_branch_write":        {forge: lab, method: "DELETE", path: "/api/v4/projects/1001/repository/branches/main", code: write},
		"gitlab_hook_write":          {forge: lab, method: "POST", path: "/api/v4/projects/1001/hooks", body: `{}`, code: write},
		"gitlab_trigger":             {forge: lab, method: "POST", path: "/api/v4/projects/1001/trigger/pipeline", body: `{}`, code: write},
		"gitlab_merge":               {forge: lab, method: "PUT", path: "/api/v4/projects/1001/merge_requests/7/merge", code: write},

		"gitea_itself":                  {forge: tea, path: "/api/v1/repos/acme/shop", sent: "GET /api/v1/repos/acme/shop"},
		"gitea_pulls":                   {forge: tea, path: "/api/v1/repos/acme/shop/pulls?state=open", sent: "GET /api/v1/repos/acme/shop/pulls?state=open"},
		"gitea_case":                    {forge: tea, path: "/api/v1/repos/ACME/Shop/issues/7/comments", sent: "GET /api/v1/repos/acme/shop/issues/7/comments"},
		"gitea_by_id":                   {forge: tea, path: "/api/v1/repositories/1001/branches", sent: "GET /api/v1/repos/acme/shop/branches"},
		"gitea_sibling":                 {forge: tea, path: "/api/v1/repos/acme/docs/contents/src/main.go?ref=main", sent: "GET /api/v1/repos/acme/docs/contents/src/main.go?ref=main"},
		"gitea_compare":                 {forge: tea, path: "/api/v1/repos/acme/shop/compare/main...gatehouse/one", sent: "GET /api/v1/repos/acme/shop/compare/main...gatehouse/one"},
		"EG-85_gitea_other":             {forge: tea, path: "/api/v1/repos/acme/other/contents/README", code: other},
		"EG-85_gitea_other_by_id":       {forge: tea, path: "/api/v1/repositories/1003", code: other},
		"EG-85_gitea_unlisted":          {forge: tea, path: "/api/v1/repos/acme/unlisted", code: other},
		"EG-85_gitea_compare_with_fork": {forge: tea, path: "/api/v1/repos/acme/shop/compare/main...them:secret", code: place},
		"EG-85_gitea_encoded_colon":     {forge: tea, path: "/api/v1/repos/acme/shop/compare/main...them%3Asecret", code: place},
		"EG-85_gitea_encoded_slash":     {forge: tea, path: "/api/v1/repos/acme%2Fother/contents", code: other},
		"EG-75_gitea_sudo":              {forge: tea, path: "/api/v1/repos/acme/shop/issues", field: "Sudo", code: foreign},
		"EG-75_gitea_sudo_query":        {forge: tea, path: "/api/v1/repos/acme/shop/issues?sudo=root", code: foreign},
		"EG-75_gitea_token":             {forge: tea, path: "/api/v1/repos/acme/shop/issues?token=0123456789abcdef", code: foreign},
		"EG-85_gitea_user":              {forge: tea, path: "/api/v1/user/repos", code: place},
		"EG-85_gitea_search":            {forge: tea, path: "/api/v1/repos/search?q=x", code: place},
		"EG-85_gitea_orgs":              {forge: tea, path: "/api/v1/orgs/acme/repos", code: place},
		"EG-85_gitea_admin":             {forge: tea, path: "/api/v1/admin/users", code: place},
		"EG-85_gitea_timeline":          {forge: tea, path: "/api/v1/repos/acme/shop/issues/7/timeline", code: place},
		"EG-85_gitea_forks":             {forge: tea, path: "/api/v1/repos/acme/shop/forks", code: place},
		"gitea_hooks":                   {forge: tea, path: "/api/v1/repos/acme/shop/hooks", code: place},
		"gitea_keys":                    {forge: tea, path: "/api/v1/repos/acme/shop/keys", code: place},
		"gitea_secrets":                 {forge: tea, path: "/api/v1/repos/acme/shop/actions/secrets", code: place},
		"gitea_variables":               {forge: tea, path: "/api/v1/repos/acme/shop/actions/variables", code: place},
		"gitea_runner_token":            {forge: tea, path: "/api/v1/repos/acme/shop/actions/runners/registration-token", code: place},
		"gitea_collaborators":           {forge: tea, path: "/api/v1/repos/acme/shop/collaborators", code: place},
		"gitea_protected":               {forge: tea, path: "/api/v1/repos/acme/shop/branch_protections", code: place},
		"gitea_archive":                 {forge: tea, path: "/api/v1/repos/acme/shop/archive/main.zip", code: place},
		"EG-86_gitea_contents_write":    {forge: tea, method: "POST", path: "/api/v1/repos/acme/shop/contents/x", body: `{}`, code: write},
		"EG-86_gitea_diffpatch":         {forge: tea, method: "POST", path: "/api/v1/repos/acme/shop/diffpatch", body: `{}`, code: write},
		"gitea_hook_write":              {forge: tea, method: "POST", path: "/api/v1/repos/acme/shop/hooks", body: `{}`, code: write},
		"gitea_transfer":                {forge: tea, method: "POST", path: "/api/v1/repos/acme/shop/transfer", body: `{}`, code: write},
		"gitea_dispatch":                {forge: tea, method: "POST", path: "/api/v1/repos/acme/shop/actions/workflows/x/dispatches", body: `{}`, code: write},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				w.mu.Lock()
				w.seen = nil
				clear(w.auth)
				w.mu.Unlock()
				s := open(t, w, setup{mode: mode, forge: c.forge})
				method, header := c.method, http.Header{"Authorization": {"Bearer " + placeholder}}
				if method == "" {
					method = http.MethodGet
				}
				switch {
				case c.field != "":
					header.Set(c.field, "root-0123456789abcdef")
				case c.body != "" && method == http.MethodGet:
					header.Set("Content-Type", "application/x-www-form-urlencoded")
				case c.body != "":
					header.Set("Content-Type", "application/json")
				}
				_, code, text := s.send(t, "git.good.test", method, c.path, c.body, header)
				w.mu.Lock()
				defer w.mu.Unlock()
				if c.sent == "" {
					if code != c.code || len(w.seen) != 0 || len(s.inject.asked()) != 0 {
						t.Errorf("refused with %q, want %q; the host saw %q, credentials asked for %q: %s", code, c.code, w.seen, s.inject.asked(), text)
					}
					return
				}
				if len(w.seen) != 1 || w.seen[0] != c.sent || !strings.Contains(text, "of the API") {
					t.Errorf("the host saw %q, want %q (%s)", w.seen, c.sent, text)
				}
			})
		}
	}
}

// TestForgeHeaders: of the request's own fields only listed ones are sent on, and
// the credential is a bearer token, as these APIs take one.
func TestForgeHeaders(t *testing.T) {
	w := newWorld(t)
	var got http.Header
	w.look = func(r *http.Request) { got = r.Header.Clone() }
	c, err := git.NewCredentials(staticOptions())
	if err != nil {
		t.Fatal(err)
	}
	c.Open("s-1", git.Repository{ID: shopID, Name: "acme/shop"}, nil)
	s := open(t, w, setup{forge: git.GitLab, real: c})
	status, _, text := s.send(t, "git.good.test", "GET", "/api/v4/projects/1001/issues", "", http.Header{
		"Private-Token": {placeholder}, "Accept": {"application/json"}, "X-Gitlab-Static-Object-Token": {"x"}, "X-Http-Method-Override": {"DELETE"}, "Cookie": {placeholder},
	})
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if got.Get("Authorization") != "Bearer glpat-canary" || got.Get("Accept") != "application/json" {
		t.Errorf("the host saw %v", got)
	}
	for _, name := range []string{"Private-Token", "X-Gitlab-Static-Object-Token", "X-Http-Method-Override", "Cookie"} {
		if got.Get(name) != "" {
			t.Errorf("the host saw %s", name)
		}
	}
}

// TestStaticGitHub is M-11 for a GitHub connection whose credential is not
// narrowed: what could answer with another repository's words is closed too.
func TestStaticGitHub(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		path string
		ok   bool
	}{
		"issue":             {"/repos/acme/shop/issues/7", true},
		"comments":          {"/repos/acme/shop/issues/7/comments", true},
		"compare":           {"/repos/acme/shop/compare/main...gatehouse/one", true},
		"M-11_compare_fork": {"/repos/acme/shop/compare/main...them:secret", false},
		"M-11_timeline":     {"/repos/acme/shop/issues/7/timeline", false},
		"M-11_sub_issues":   {"/repos/acme/shop/issues/7/sub_issues", false},
		"M-11_parent":       {"/repos/acme/shop/issues/7/parent", false},
		"M-11_blocked_by":   {"/repos/acme/shop/issues/7/dependencies/blocked_by", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, w, setup{static: true})
			before := w.api.Requests()
			status, code, text := s.request(t, "GET", c.path, "")
			sent := w.api.Requests() - before
			if c.ok && (status != http.StatusOK || sent != 1) || !c.ok && (code != git.CodeAPIPlace || sent != 0 || len(s.inject.asked()) != 0) {
				t.Errorf("%d %q, %d requests: %s", status, code, sent, text)
			}
		})
	}
}
