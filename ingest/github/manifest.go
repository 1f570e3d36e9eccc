package github

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-github/v66/github"

	"gatehouse/ingest"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Manifest is what a GitHub App is made from: the form that GitHub shows a
// person, filled in. Field names are GitHub's.
type Manifest struct {
	Name        string            `json:"name"`
	URL         string            `json:"url"` // shown on the App's page
	Hook        ManifestHook      `json:"hook_attributes"`
	Redirect    string            `json:"redirect_url"` // gets the code, once the person has agreed
	Public      bool              `json:"public"`
	Permissions map[string]string `json:"default_permissions"`
	Events      []string          `json:"default_events"`
}

// ManifestHook is where the App's deliveries go.
type ManifestHook struct {
	URL    string `json:"url"`
	Active bool   `json:"active"`
}

// eventPermissions is the permission that GitHub wants to see, at read, before an
// App may subscribe to an event: its webhook documentation, by event. Every App
// has metadata. Installation events come to every App and are not subscribed to.
var eventPermissions = map[string]string{
	"check_run": "checks", "check_suite": "checks",
	"code_scanning_alert": "security_events", "dependabot_alert": "vulnerability_alerts", "secret_scanning_alert": "secret_scanning_alerts",
	"commit_comment": "contents", "create": "contents", "delete": "contents", "push": "contents", "release": "contents",
	"deployment": "deployments", "deployment_status": "deployments",
	"discussion": "discussions", "discussion_comment": "discussions",
	"issue_comment": "issues", "issues": "issues",
	"label": "metadata", "repository": "metadata", "star": "metadata",
	"member":       "members",
	"pull_request": "pull_requests", "pull_request_review": "pull_requests", "pull_request_review_comment": "pull_requests", "pull_request_review_thread": "pull_requests",
	"status":       "statuses",
	"workflow_job": "actions", "workflow_run": "actions",
}

// Subscribe sets the events and the least permissions that they and the node need,
// and those that the caller names as name=read or name=write besides.
func (m *Manifest) Subscribe(events, more []string) error {
	m.Permissions = map[string]string{"metadata": "read"}
	for _, e := range events {
		p, ok := eventPermissions[e]
		if !ok {
			return problem.New(problem.Usage, fmt.Sprintf("event %q is not one that a GitHub App can be given here", e),
				"one of "+strings.Join(slices.Sorted(maps.Keys(eventPermissions)), ", "))
		}
		m.Permissions[p] = "read"
	}
	for _, p := range more {
		name, level, _ := strings.Cut(p, "=")
		if !isWord(name) || level != "read" && level != "write" {
			return problem.New(problem.Usage, fmt.Sprintf("permission %q is not NAME=read or NAME=write", p), "for example contents=write")
		}
		m.Permissions[name] = level
	}
	m.Events = slices.Compact(slices.Sorted(slices.Values(events)))
	return nil
}

func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// ManifestPage is where a person is sent with a manifest: the page of the GitHub
// whose API is at api, for an organization's App or, without one, their own.
func ManifestPage(api *url.URL, organization, state string) *url.URL {
	host := strings.TrimPrefix(api.Host, "api.") // api.github.com; an Enterprise Server has one name
	path := "/settings/apps/new"
	if organization != "" {
		path = "/organizations/" + organization + path
	}
	return &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: url.Values{"state": {state}}.Encode()}
}

// Created is an App that GitHub made from a manifest.
type Created struct {
	ID          int64
	Slug        string // closed characters
	Page        string // its public page, on the GitHub that was asked
	Key, Secret secret.Value
}

// Create exchanges the code that GitHub gave the person's browser for the App.
// A code is good once and for an hour. base reaches the API's authority and no
// other. No error holds what GitHub answered: the answer is made of secrets.
func Create(ctx context.Context, api *url.URL, base http.RoundTripper, code string) (Created, error) {
	if len(code) > 100 || !isID(code) {
		return Created{}, errors.New("the code is not one of GitHub's")
	}
	c := github.NewClient(&http.Client{Transport: base})
	c.BaseURL = api
	app, resp, err := c.Apps.CompleteAppManifest(ctx, code)
	if err != nil {
		if resp != nil {
			return Created{}, fmt.Errorf("GitHub answered %d", resp.StatusCode)
		}
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the URL, which holds the code
		}
		return Created{}, fmt.Errorf("GitHub was not reached: %w", err)
	}
	made := Created{ID: app.GetID(), Slug: app.GetSlug(), Key: secret.FromString(app.GetPEM()), Secret: secret.FromString(app.GetWebhookSecret())}
	if _, err := NewApp(made.ID, made.Key); err != nil {
		return Created{}, err
	}
	if _, err := ingest.NewSecrets([]secret.Value{made.Secret}); err != nil {
		return Created{}, err
	}
	if !isID(made.Slug) {
		return Created{}, errors.New("GitHub's answer has no name")
	}
	// /apps/ on github.com, /github-apps/ on an Enterprise Server.
	host := ManifestPage(api, "", "").Host
	for _, folder := range []string{"apps", "github-apps"} {
		if page := "https://" + host + "/" + folder + "/" + made.Slug; made.Page == "" || app.GetHTMLURL() == page {
			made.Page = page
		}
	}
	return made, nil
}

// isID admits letters, digits, _ and -.
func isID(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}
