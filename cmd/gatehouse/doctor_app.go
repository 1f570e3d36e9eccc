package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/ingest/github"
	"gatehouse/internal/config"
)

// appLimit bounds doctor's question to a host.
const appLimit = 15 * time.Second

// operationAccess is what an operation's token must be good for.
var operationAccess = map[string]git.Access{
	"scm.pr.create": git.Pulls, "scm.comment": git.Comments, "scm.commit.status": git.Statuses, "scm.run.logs": git.Logs, "scm.artifact.get": git.Logs,
}

// eventPermissions are what an App must be able to read for GitHub to deliver an
// event to it, by the event's name.
var eventPermissions = map[string]string{
	"workflow_run": "actions", "workflow_job": "actions", "check_run": "checks", "check_suite": "checks", "issues": "issues", "issue_comment": "issues",
	"pull_request": "pull_requests", "pull_request_review": "pull_requests", "pull_request_review_comment": "pull_requests",
	"push": "contents", "create": "contents", "delete": "contents", "release": "contents", "status": "statuses", "deployment": "deployments",
	"deployment_status": "deployments", "code_scanning_alert": "security_events", "secret_scanning_alert": "secret_scanning_alerts",
	"dependabot_alert": "vulnerability_alerts", "discussion": "discussions", "discussion_comment": "discussions", "repository": "metadata",
}

// examineApps compares what each GitHub App may do with what the bundles and
// endpoints need: what is missing fails sessions, what is too much is what a
// stolen key would be worth.
func examineApps(ctx context.Context, cfg *config.Config, up *upstream.Client) []finding {
	var found []finding
	for _, c := range cfg.Connections {
		if c.Kind != "scm" || c.Provider != "github" || c.App == nil {
			continue
		}
		check := "app of " + c.Name
		need, err := neededOf(cfg, c.Name)
		if err == nil {
			var have map[string]string
			if have, err = appPermissions(ctx, cfg, c, up); err == nil {
				found = append(found, comparePermissions(check, have, need)...)
				continue
			}
		}
		found = append(found, finding{check, levelFail, "couldn't compare its permissions: " + err.Error(), remedy(err)})
	}
	return found
}

// appPermissions asks GitHub what an App may do.
func appPermissions(ctx context.Context, cfg *config.Config, c config.Connection, up *upstream.Client) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, appLimit)
	defer cancel()
	o, base, err := apiCall(cfg, c, "doctor")
	if err != nil {
		return nil, err
	}
	// Doctor is no node: it has no chain, and prints what it found instead.
	o.Begin = func(context.Context, string) (func(enforcers.Outcome), error) { return func(enforcers.Outcome) {}, nil }
	transport, err := up.Node(o)
	if err != nil {
		return nil, err
	}
	api := &github.API{URL: base, Base: transport}
	if api.App, err = github.NewApp(c.App.ID, c.App.Key.Value()); err != nil {
		return nil, err
	}
	return api.Permissions(ctx)
}

// permissionsOf lists permissions by GitHub's names.
func permissionsOf(p any) (map[string]string, error) {
	out := map[string]string{}
	b, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}

// neededOf returns what a connection's App must be able to do.
func neededOf(cfg *config.Config, connection string) (map[string]string, error) {
	need := map[string]string{"metadata": "read"}
	raise := func(name, level string) {
		if rank(level) > rank(need[name]) {
			need[name] = level
		}
	}
	access := func(a git.Access) error {
		p, err := git.Permissions(a)
		if err != nil {
			return err
		}
		wanted, err := permissionsOf(p)
		for name, level := range wanted {
			raise(name, level)
		}
		return err
	}
	files, err := readBundles(cfg)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := bundle.Parse(f.Source)
		if err != nil {
			return nil, err
		}
		var all []git.Access
		if b.Git != nil {
			all = append(all, git.Read)
			if b.Git.Push != nil {
				all = append(all, git.Write)
			}
		}
		for _, e := range b.Egress {
			if e.Connection == connection {
				all = append(all, git.Look)
			}
		}
		for _, op := range b.Operations {
			if a, ok := operationAccess[op]; ok {
				all = append(all, a)
			}
		}
		for _, a := range all {
			if err := access(a); err != nil {
				return nil, err
			}
		}
		for _, t := range b.Triggers {
			for _, kind := range t.Kinds {
				event, _, _ := strings.Cut(kind, ".")
				if name := eventPermissions[event]; t.Source == "github" && name != "" {
					raise(name, "read")
				}
			}
		}
	}
	for _, e := range cfg.Endpoints {
		if e.Connection == connection && e.Hook != nil && e.Hook.Organization == "" {
			raise("repository_hooks", "write") // redelivery: GitHub has no smaller one
		}
	}
	return need, nil
}

// rank orders levels of a permission.
func rank(level string) int { return slices.Index([]string{"", "read", "write", "admin"}, level) }

// comparePermissions words what is missing and what is too much.
func comparePermissions(check string, have, need map[string]string) []finding {
	var missing, more []string
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if rank(have[name]) < rank(need[name]) {
			missing = append(missing, name+": "+need[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if rank(have[name]) > rank(need[name]) || rank(have[name]) < 0 {
			more = append(more, name+": "+have[name])
		}
	}
	var found []finding
	if len(missing) > 0 {
		found = append(found, finding{check, levelFail, "it lacks " + strings.Join(missing, ", "), "grant them on the App's page, and accept them where it is installed"})
	}
	if len(more) > 0 {
		found = append(found, finding{check, levelWarn, "it has more than anything here needs: " + strings.Join(more, ", "), "take them away on the App's page"})
	}
	if len(found) == 0 {
		found = append(found, finding{check, levelOK, fmt.Sprintf("it has the %d permissions that bundles and endpoints need", len(need)), ""})
	}
	return found
}
