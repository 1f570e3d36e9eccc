//go:build linux

package git_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/receipts"
)

// commands are n commands of a push, the first with capabilities.
func commands(n int, capabilities string) string {
	var b strings.Builder
	for i := range n {
		line := fmt.Sprintf("%s %s refs/heads/gatehouse/r%d", strings.Repeat("0", 40), strings.Repeat("a", 40), i)
		if i == 0 {
			line += "\x00 report-status" + capabilities
		}
		fmt.Fprintf(&b, "%04x%s", len(line)+4, line)
	}
	return b.String() + "0000"
}

// zipped is a body as git sends a long one.
func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

// TestBypassMatrix has the rows about git of the bypass matrix, EG-79 to EG-86
// (the others are in enforcers/door). More ways are tried under the same ids in
// TestFetch (submodules), TestLFS, TestAPI, TestGraphQL and TestForges.
func TestBypassMatrix(t *testing.T) {
	w := newWorld(t)
	otherRepositories(t, w)
	otherTransports(t, w)
	refusedPushes(t, w, func(name string) bool { return strings.HasPrefix(name, "EG-") })
	const shop = "/acme/shop.git"
	pack := http.Header{"Content-Type": {"application/x-git-upload-pack-request"}}
	receive := http.Header{"Content-Type": {"application/x-git-receive-pack-request"}}
	v2 := http.Header{"Content-Type": {"application/x-git-upload-pack-request"}, "Git-Protocol": {"version=2"}}
	for name, c := range map[string]struct {
		host, method, target, body string
		header                     http.Header
		status                     int
		code                       string
		sent                       int64 // requests that reached the host
	}{
		"EG-79_refs":                {method: "GET", target: shop + "/info/refs?service=git-upload-pack", status: 200, sent: 1},
		"EG-79_service":             {method: "POST", target: shop + "/git-upload-pack", body: "0014command=ls-refs\n0000", header: v2, status: 200, sent: 1},
		"EG-82_get_on_a_service":    {method: "GET", target: shop + "/git-receive-pack", status: 400, code: enforcers.CodeMalformed},
		"EG-82_get_on_upload_pack":  {method: "GET", target: shop + "/git-upload-pack", status: 400, code: enforcers.CodeMalformed},
		"EG-82_post_on_refs":        {method: "POST", target: shop + "/info/refs?service=git-upload-pack", status: 400, code: enforcers.CodeMalformed},
		"EG-82_query_on_a_service":  {method: "POST", target: shop + "/git-upload-pack?service=git-receive-pack", header: pack, status: 400, code: enforcers.CodeMalformed},
		"EG-83_two_services":        {method: "GET", target: shop + "/info/refs?service=git-upload-pack&service=git-receive-pack", status: 400, code: enforcers.CodeMalformed},
		"EG-83_service_twice":       {method: "GET", target: shop + "/info/refs?service=git-upload-pack&service=git-upload-pack", status: 400, code: enforcers.CodeMalformed},
		"EG-83_encoded_service":     {method: "GET", target: shop + "/info/refs?service=git%2dupload-pack", status: 400, code: enforcers.CodeMalformed},
		"EG-83_unknown_service":     {method: "GET", target: shop + "/info/refs?service=git-upload-archive", status: 400, code: enforcers.CodeMalformed},
		"EG-83_wrong_content_type":  {method: "POST", target: shop + "/git-upload-pack", body: "0000", header: http.Header{"Content-Type": {"application/x-git-receive-pack-request"}}, status: 400, code: enforcers.CodeMalformed},
		"EG-83_protocol_twice":      {method: "GET", target: shop + "/info/refs?service=git-upload-pack", header: http.Header{"Git-Protocol": {"version=2", "version=0"}}, status: 400, code: enforcers.CodeMalformed},
		"EG-83_unknown_encoding":    {method: "POST", target: shop + "/git-upload-pack", body: "x", header: http.Header{"Content-Type": {"application/x-git-upload-pack-request"}, "Content-Encoding": {"br"}}, status: 400, code: enforcers.CodeMalformed},
		"EG-84_dumb_refs":           {method: "GET", target: shop + "/info/refs", status: 403, code: git.CodeDumb},
		"EG-84_dumb_head":           {method: "GET", target: shop + "/HEAD", status: 403, code: git.CodeDumb},
		"EG-84_dumb_object":         {method: "GET", target: shop + "/objects/info/packs", status: 403, code: git.CodeDumb},
		"EG-84_alternates":          {method: "GET", target: shop + "/objects/info/http-alternates", status: 403, code: git.CodeDumb},
		"EG-84_bundle_uri":          {method: "POST", target: shop + "/git-upload-pack", body: "0017command=bundle-uri\n0000", header: v2, status: 403, code: git.CodeUnlistedQ},
		"EG-84_packfile_uris":       {method: "POST", target: shop + "/git-upload-pack", body: "0012command=fetch\n0001001apackfile-uris https\n0000", header: v2, status: 403, code: git.CodeUnlistedQ},
		"EG-84_object_info":         {method: "POST", target: shop + "/git-upload-pack", body: "0018command=object-info\n0000", header: v2, status: 403, code: git.CodeUnlistedQ},
		"EG-84_lfs_batch":           {method: "POST", target: shop + "/info/lfs/objects/batch", body: "{}", header: http.Header{"Content-Type": {"application/vnd.git-lfs+json"}}, status: 422, code: git.CodeLFS},
		"EG-84_lfs_locks":           {method: "POST", target: shop + "/info/lfs/locks/verify", body: "{}", header: http.Header{"Content-Type": {"application/vnd.git-lfs+json"}}, status: 404, code: git.CodeLFSLocks},
		"EG-84_lfs_not_asked":       {method: "GET", target: shop + "/info/lfs/objects/" + strings.Repeat("a", 64), status: 403, code: git.CodeLFSAsked},
		"EG-85_archive":             {method: "GET", target: "/acme/shop/archive/refs/heads/main.zip", status: 403, code: "connection_not_listed"},
		"EG-85_raw":                 {method: "GET", target: "/acme/other/raw/main/README", status: 403, code: "connection_not_listed"},
		"EG-85_rest":                {host: "api.good.test", method: "GET", target: "/repos/acme/other/contents/README", status: 403, code: git.CodeAPIRepository},
		"EG-85_rest_by_id":          {host: "api.good.test", method: "GET", target: "/repositories/" + otherID, status: 403, code: git.CodeAPIRepository},
		"EG-85_installation_token":  {host: "api.good.test", method: "DELETE", target: "/installation/token", status: 403, code: git.CodeAPIPlace},
		"EG-85_user_repos":          {host: "api.good.test", method: "GET", target: "/user/repos", status: 403, code: git.CodeAPIPlace},
		"EG-85_gists":               {host: "api.good.test", method: "POST", target: "/gists", body: "{}", status: 403, code: git.CodeAPIPlace},
		"EG-85_graphql":             {host: "api.good.test", method: "POST", target: "/graphql", body: `{"query":"{repository(owner:\"acme\",name:\"other\"){id}}"}`, header: http.Header{"Content-Type": {"application/json"}}, status: 403, code: git.CodeGraphQL},
		"EG-85_graphql_node":        {host: "api.good.test", method: "POST", target: "/graphql", body: `{"query":"{node(id:\"R_1\"){id}}"}`, header: http.Header{"Content-Type": {"application/json"}}, status: 403, code: git.CodeGraphQL},
		"EG-86_push_without_a_host": {host: "free.good.test", method: "POST", target: "/acme/shop.git/git-receive-pack", status: 403, code: "repository_not_listed"},
		"ME-22_ten_thousand_refs":   {method: "POST", target: shop + "/git-receive-pack", body: commands(10_000, ""), header: receive, status: 200, code: git.CodePush},
		"ME-22_sha256":              {method: "POST", target: shop + "/git-receive-pack", body: commands(1, " report-status object-format=sha256"), header: receive, status: 200, code: git.CodePush},
		"ME-22_push_options":        {method: "POST", target: shop + "/git-receive-pack", body: commands(1, " report-status push-options"), header: receive, status: 200, code: git.CodePush},
		"ME-22_split_pkt":           {method: "POST", target: shop + "/git-receive-pack", body: commands(1, " report-status")[:40], header: receive, status: 200, code: ""},
		"ME-22_gzip":                {method: "POST", target: shop + "/git-receive-pack", body: zipped(commands(1, "")), header: http.Header{"Content-Type": receive["Content-Type"], "Content-Encoding": {"gzip"}}, status: 200, code: "ng refs/heads/gatehouse/r0 " + git.CodePush},
		"ME-22_gzip_of_nothing":     {method: "POST", target: shop + "/git-receive-pack", body: "x", header: http.Header{"Content-Type": receive["Content-Type"], "Content-Encoding": {"gzip"}}, status: 400, code: enforcers.CodeMalformed},
		"EG-86_malformed_push":      {method: "POST", target: shop + "/git-receive-pack", body: "00", header: http.Header{"Content-Type": {"application/x-git-upload-pack-request"}}, status: 400, code: enforcers.CodeMalformed},
		"EG-83_cut_request":         {method: "POST", target: shop + "/git-upload-pack", body: "0032want " + strings.Repeat("a", 40), header: pack, status: 400, code: enforcers.CodeMalformed},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				s := open(t, w, setup{mode: mode, push: pushBranches})
				before := w.site.Requests() + w.api.Requests() + w.free.Requests()
				host, header := c.host, c.header
				if host == "" {
					host = "git.good.test"
				}
				if header == nil {
					header = http.Header{}
				}
				status, code, text := s.send(t, host, c.method, c.target, c.body, header)
				s.stop()
				if status != c.status || c.code != "" && code != c.code && !strings.Contains(text, c.code) {
					t.Errorf("%d %q, want %d %q: %.200s", status, code, c.status, c.code, text)
				}
				if n := w.site.Requests() + w.api.Requests() + w.free.Requests() - before; n != c.sent {
					t.Errorf("%d requests reached the host, want %d", n, c.sent)
				}
				if len(s.inject.asked()) != int(c.sent) {
					t.Errorf("credentials were asked for: %q", s.inject.asked())
				}
				if len(s.rec.of(enforcers.GitFetch))+len(s.rec.of(enforcers.GitPush))+len(s.rec.of(enforcers.HTTPRequest)) != 1 {
					t.Error("it has not exactly one decision")
				}
			})
		}
	}
}
