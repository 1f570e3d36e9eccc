//go:build linux

package git_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/receipts"
)

// request sends one request to the API as a client inside would.
func (s *session) request(t *testing.T, method, target, body string) (status int, code, text string) {
	t.Helper()
	return s.send(t, "api.good.test", method, target, body, http.Header{"Content-Type": {"application/json"}, "Authorization": {"token " + placeholder}})
}

// client is a transport of a client inside.
func (s *session) client() *http.Transport {
	return &http.Transport{Proxy: http.ProxyURL(&neturl.URL{Scheme: "http", Host: s.proxy}), TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}
}

// send sends one request to any host.
func (s *session) send(t *testing.T, host, method, target, body string, header http.Header) (status int, code, text string) {
	t.Helper()
	tr := s.client()
	tr.DisableKeepAlives = true
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	r.URL.Opaque, r.URL.RawQuery = "//"+host+path, query
	r.Header = header
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Code string }
	if json.Unmarshal(b, &p) != nil {
		// What git is told: the code stands in the first line.
		_, rest, _ := strings.Cut(string(b), " by Gatehouse: ")
		p.Code, _, _ = strings.Cut(strings.ReplaceAll(rest, "\n", " "), " ")
	}
	return resp.StatusCode, p.Code, string(b)
}

// TestAPI: under a rule that lists every path, the API answers about the
// session's repositories, and only reads.
func TestAPI(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		method, path string
		sent         string // what the host saw, "" = nothing
		code         string
	}{
		"repository":                  {"GET", "/repos/acme/shop", "GET /repos/acme/shop ", ""},
		"pulls":                       {"GET", "/repos/acme/shop/pulls?state=open", "GET /repos/acme/shop/pulls?state=open ", ""},
		"case":                        {"GET", "/repos/ACME/Shop/pulls", "GET /repos/acme/shop/pulls ", ""},
		"by_id":                       {"GET", "/repositories/1001/pulls?page=2", "GET /repos/acme/shop/pulls?page=2 ", ""},
		"sibling":                     {"GET", "/repos/acme/docs/contents/README", "GET /repos/acme/docs/contents/README ", ""},
		"runs":                        {"GET", "/repos/acme/shop/actions/runs/5/jobs", "GET /repos/acme/shop/actions/runs/5/jobs ", ""},
		"EG-85_other":                 {"GET", "/repos/acme/other", "", git.CodeAPIRepository},
		"EG-85_other_by_id":           {"GET", "/repositories/1003", "", git.CodeAPIRepository},
		"EG-85_unlisted":              {"GET", "/repos/acme/unlisted/contents/README", "", git.CodeAPIRepository},
		"EG-85_dot_git":               {"GET", "/repos/acme/other.git", "", git.CodeAPIRepository},
		"EG-85_user":                  {"GET", "/user", "", git.CodeAPIPlace},
		"EG-85_user_repos":            {"GET", "/user/repos", "", git.CodeAPIPlace},
		"EG-85_installation_token":    {"POST", "/app/installations/88/access_tokens", "", git.CodeAPIPlace},
		"EG-85_installation_repos":    {"GET", "/installation/repositories", "", git.CodeAPIPlace},
		"EG-85_search":                {"GET", "/search/code?q=org:acme", "", git.CodeAPIPlace},
		"EG-85_gists":                 {"POST", "/gists", "", git.CodeAPIPlace},
		"EG-85_orgs":                  {"GET", "/orgs/acme/repos", "", git.CodeAPIPlace},
		"hooks":                       {"GET", "/repos/acme/shop/hooks", "", git.CodeAPIPlace},
		"keys":                        {"GET", "/repos/acme/shop/keys", "", git.CodeAPIPlace},
		"protection":                  {"GET", "/repos/acme/shop/branches/main/protection", "", git.CodeAPIPlace},
		"protection_of_reviews":       {"GET", "/repos/acme/shop/branches/main/protection/required_pull_request_reviews", "", git.CodeAPIPlace},
		"branch":                      {"GET", "/repos/acme/shop/branches/main", "GET /repos/acme/shop/branches/main ", ""},
		"environments":                {"GET", "/repos/acme/shop/environments", "", git.CodeAPIPlace},
		"secrets":                     {"GET", "/repos/acme/shop/actions/secrets", "", git.CodeAPIPlace},
		"variables":                   {"GET", "/repos/acme/shop/actions/variables", "", git.CodeAPIPlace},
		"runner_token":                {"POST", "/repos/acme/shop/actions/runners/registration-token", "", git.CodeAPIWrite},
		"dispatch":                    {"POST", "/repos/acme/shop/dispatches", "", git.CodeAPIWrite},
		"workflow_dispatch":           {"POST", "/repos/acme/shop/actions/workflows/1/dispatches", "", git.CodeAPIWrite},
		"contents_write_is_a_push":    {"PUT", "/repos/acme/shop/contents/.github/workflows/x.yml", "", git.CodeAPIWrite},
		"ref_write_is_a_push":         {"POST", "/repos/acme/shop/git/refs", "", git.CodeAPIWrite},
		"collaborators":               {"PUT", "/repos/acme/shop/collaborators/evil", "", git.CodeAPIWrite},
		"fork":                        {"POST", "/repos/acme/shop/forks", "", git.CodeAPIWrite},
		"delete":                      {"DELETE", "/repos/acme/shop", "", git.CodeAPIWrite},
		"archive":                     {"GET", "/repos/acme/shop/tarball/main", "", git.CodeAPIPlace},
		"logs_answer_with_an_address": {"GET", "/repos/acme/shop/actions/jobs/5/logs", "", git.CodeAPIPlace},
		"encoded_slash":               {"GET", "/repos/acme/shop/contents%2f..%2f..%2fother", "", enforcers.CodeBadPath},
		"method_override":             {"GET", "/repos/acme%2fother", "", enforcers.CodeBadPath},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				s := open(t, w, setup{mode: mode})
				before := w.api.Requests()
				_, code, text := s.request(t, c.method, c.path, "")
				if c.sent == "" {
					if code != c.code && !(c.code == enforcers.CodeBadPath && strings.Contains(text, "malformed")) {
						t.Errorf("refused with %q, want %q: %s", code, c.code, text)
					}
					if w.api.Requests() != before || len(s.inject.asked()) != 0 {
						t.Errorf("%d requests, credentials asked for %q", w.api.Requests()-before, s.inject.asked())
					}
					return
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if got := w.seen[len(w.seen)-1]; got != c.sent {
					t.Errorf("the host saw %q, want %q (%s)", got, c.sent, text)
				}
			})
		}
	}
}

// TestGraphQL: only a query about repositories that the session may read is
// passed on, as it was read.
func TestGraphQL(t *testing.T) {
	w := newWorld(t)
	s := open(t, w, setup{})
	body := func(query, variables string) string {
		q, err := json.Marshal(query)
		if err != nil {
			t.Fatal(err)
		}
		if variables == "" {
			variables = "{}"
		}
		return `{"query":` + string(q) + `,"variables":` + variables + `}`
	}
	below := func(fields string) string { return body(`{repository(owner:"acme",name:"shop"){`+fields+`}}`, "") }
	for name, c := range map[string]struct {
		body string
		ok   bool
	}{
		"literal":                       {body(`{repository(owner:"acme",name:"shop"){pullRequests(first:10){nodes{title}}}}`, ""), true},
		"variables":                     {body(`query PullRequestList($owner:String!,$repo:String!){repository(owner:$owner,name:$repo){id}}`, `{"owner":"acme","repo":"Shop"}`), true},
		"introspection":                 {body(`query f{Repository:__type(name:"Repository"){fields{name}}}`, ""), true},
		"fragment":                      {body(`query{...r} fragment r on Query{repository(owner:"acme",name:"docs"){id}}`, ""), true},
		"EG-85_sibling":                 {body(`{repository(owner:"acme",name:"other"){id}}`, ""), false},
		"sibling_alias":                 {body(`{a:repository(owner:"acme",name:"shop"){id} b:repository(owner:"acme",name:"other"){id}}`, ""), false},
		"two":                           {body(`{a:repository(owner:"acme",name:"shop"){id} b:repository(owner:"acme",name:"docs"){id}}`, ""), false},
		"sibling_in_a_fragment":         {body(`query{...r} fragment r on Query{repository(owner:"acme",name:"other"){id}}`, ""), false},
		"sibling_in_an_inline_fragment": {body(`query{... on Query{repository(owner:"acme",name:"other"){id}}}`, ""), false},
		"sibling_in_a_default":          {body(`query($n:String="other"){repository(owner:"acme",name:$n){id}}`, ""), false},
		"variable_is_missing":           {body(`query($n:String!){repository(owner:"acme",name:$n){id}}`, ""), false},
		"mutation":                      {body(`mutation{createIssue(input:{repositoryId:"x",title:"y"}){issue{id}}}`, ""), false},
		"mutation_after_a_comment":      {body("# query\nmutation{deleteRef(input:{refId:\"x\"}){clientMutationId}}", ""), false},
		"two_operations":                {body(`query a{repository(owner:"acme",name:"shop"){id}} mutation b{deleteRef(input:{refId:"x"}){clientMutationId}}`, ""), false},
		"operation_name_of_another":     {strings.Replace(body(`query a{rateLimit{cost}}`, ""), "{", `{"operationName":"b",`, 1), false},
		"subscription":                  {body(`subscription{x}`, ""), false},
		"node":                          {body(`{node(id:"R_kgDOAAAAAA"){id}}`, ""), false},
		"search":                        {body(`{search(query:"org:acme",type:REPOSITORY,first:1){nodes{__typename}}}`, ""), false},
		"viewer":                        {body(`{viewer{repositories(first:1){nodes{name}}}}`, ""), false},
		"organization":                  {body(`{organization(login:"acme"){repositories(first:1){nodes{name}}}}`, ""), false},
		"key_twice":                     {`{"query":"{rateLimit{cost}}","query":"mutation{x}"}`, false},
		"key_twice_by_case":             {`{"query":"{rateLimit{cost}}","QUERY":"mutation{x}"}`, false},
		"variable_twice":                {`{"query":"query($n:String!){repository(owner:\"acme\",name:$n){id}}","variables":{"n":"shop","n":"other"}}`, false},
		"batch":                         {`[{"query":"{rateLimit{cost}}"}]`, false},
		"persisted":                     {`{"query":"{rateLimit{cost}}","extensions":{"persistedQuery":{}}}`, false},
		"not_json":                      {`query={rateLimit{cost}}`, false},
		"owner_is_named":                {below(`owner{login ... on Organization{name}} parent{nameWithOwner owner{login}}`), true},
		"M-11_owner":                    {below(`owner{... on Organization{repository(name:"other"){object(expression:"HEAD:secret"){... on Blob{text}}}}}`), false},
		"M-11_owner_repositories":       {below(`owner{repositories(first:9){nodes{name}}}`), false},
		"M-11_parent":                   {below(`parent{object(expression:"HEAD:secret"){... on Blob{text}}}`), false},
		"M-11_forks":                    {below(`forks(first:9){nodes{name}}`), false},
		"M-11_author":                   {below(`pullRequests(first:9){nodes{author{... on User{repositories(first:9){nodes{name}}}}}}`), false},
		"M-11_head_repository":          {below(`pullRequest(number:1){headRepository{pullRequests(first:9){nodes{body}}}}`), false},
		"M-11_associated":               {below(`object(expression:"HEAD"){... on Commit{associatedPullRequests(first:9){nodes{body}}}}`), false},
		"M-11_timeline":                 {below(`issue(number:1){timelineItems(first:9){nodes{... on CrossReferencedEvent{source{... on Issue{body}}}}}}`), false},
		"M-11_linked_issue":             {below(`pullRequest(number:1){closingIssuesReferences(first:9){nodes{body}}}`), false},
		"M-11_in_a_fragment":            {body(`{repository(owner:"acme",name:"shop"){...r parent{...r}}} fragment r on Repository{issues(first:9){nodes{body}}}`, ""), false},
		"M-11_in_an_inline_fragment":    {below(`... on Node{... on Repository{parent{issues(first:9){nodes{body}}}}}`), false},
		"fragments_upon_fragments":      {body(spreads(30), ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.api.Requests()
			status, code, text := s.request(t, "POST", "/graphql", c.body)
			switch sent := w.api.Requests() - before; {
			case c.ok && (status != http.StatusOK || sent != 1):
				t.Errorf("%d %s", status, text)
			case !c.ok && (code != git.CodeGraphQL || sent != 0):
				t.Errorf("%d %q, %d requests: %s", status, code, sent, text)
			}
		})
	}
}

// spreads is a document whose fragments would be read two to the n times.
func spreads(n int) string {
	var b strings.Builder
	b.WriteString(`{repository(owner:"acme",name:"shop"){...f0}}`)
	for i := range n {
		fmt.Fprintf(&b, " fragment f%d on Repository{...f%d ...f%d}", i, i+1, i+1)
	}
	fmt.Fprintf(&b, " fragment f%d on Repository{forks(first:1){nodes{name}}}", n)
	return b.String()
}

// TestGraphQLStatic is M-11 for a credential that reaches whatever its owner
// does: no document is passed on, and no credential is asked for.
func TestGraphQLStatic(t *testing.T) {
	w := newWorld(t)
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run("M-11_"+string(mode), func(t *testing.T) {
			s := open(t, w, setup{static: true, mode: mode})
			before := w.api.Requests()
			_, code, text := s.request(t, "POST", "/graphql", `{"query":"{repository(owner:\"acme\",name:\"shop\"){id}}"}`)
			if code != git.CodeGraphQLStatic || !strings.Contains(text, "GitHub App") || w.api.Requests() != before || len(s.inject.asked()) != 0 {
				t.Errorf("%q, %d requests, credentials asked for %q: %s", code, w.api.Requests()-before, s.inject.asked(), text)
			}
		})
	}
}
