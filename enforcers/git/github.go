package git

import (
	"fmt"

	"github.com/google/go-github/v66/github"
)

// Permissions returns what a GitHub App's token must be able to do for an
// access: nothing more is asked for, and nothing more is taken.
func Permissions(a Access) (github.InstallationPermissions, error) {
	read, write := github.String("read"), github.String("write")
	p := github.InstallationPermissions{Metadata: read}
	switch a {
	case Read:
		p.Contents = read
	case Write:
		p.Contents = write
	case Look:
		p.Contents, p.PullRequests, p.Issues = read, read, read
	case Pulls:
		p.Contents, p.PullRequests = read, write
	case Comments:
		p.Issues, p.PullRequests = write, write
	case Statuses:
		p.Statuses = write
	case Logs:
		p.Actions = read
	default:
		return p, fmt.Errorf("git: no access %q", a)
	}
	return p, nil
}
