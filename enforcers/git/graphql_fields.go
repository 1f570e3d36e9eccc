package git

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// within are the fields below a repository that have fields of their own and
// stay in it, in whatever type they stand. The list is closed (EG-85): what is
// not in it or in named is refused. A field without fields of its own says
// something of where it stands, and is not listed.
var within = set(`
	nodes edges node pageInfo
	pullRequest pullRequests issue issues issueOrPullRequest label labels milestone milestones
	comments reviews latestReviews latestOpinionatedReviews reviewThreads reviewRequests reactionGroups autoMergeRequest
	commit commits files file statusCheckRollup contexts checkSuite checkSuites checkRuns workflowRun workflow status
	mergeCommit potentialMergeCommit tagCommit baseRef ref refs target defaultBranchRef object tree entries history parents blame ranges
	release releases latestRelease releaseAssets
	languages primaryLanguage licenseInfo codeOfConduct fundingLinks issueTemplates pullRequestTemplates contactLinks repositoryTopics`)

// named are the fields that lead out of a repository, to people, projects and
// other repositories: below them only what names those may be asked for.
var named = set(`
	owner author authors committer user users creator mergedBy enabledBy assignees assignableUsers mentionableUsers participants watchers stargazers
	requestedReviewer app topic
	headRef headRepository headRepositoryOwner baseRepository repository parent templateRepository
	closingIssuesReferences closedByPullRequestsReferences projectCards projectItems`)

// naming are the fields that may stand there.
var naming = set(`
	__typename id databaseId name login nameWithOwner slug url number email date avatarUrl totalCount isFork isPrivate visibility viewerPermission
	nodes edges node pageInfo hasNextPage endCursor owner user organization defaultBranchRef project column
	description hasIssuesEnabled hasWikiEnabled`)

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// visit is a fragment in one place: in another it may hold less. Each is read
// once, however often it is spread.
type visit struct {
	fragment string
	place    int
}

// Places of a selection.
const (
	atRoot       = iota
	inRepository // of the session
	outOfIt      // where only names are
)

// below holds the fields of a selection below a repository against the lists.
func (q *graphQLQuery) below(selection ast.SelectionSet, place, depth int) error {
	if depth > maxGraphQLDepth {
		return errGraphQL
	}
	for _, s := range selection {
		var err error
		switch s := s.(type) {
		case *ast.Field:
			switch {
			case place == outOfIt && naming[s.Name]:
				err = q.below(s.SelectionSet, outOfIt, depth+1)
			case place == outOfIt:
				err = errGraphQL
			case len(s.SelectionSet) == 0:
			case within[s.Name]:
				err = q.below(s.SelectionSet, inRepository, depth+1)
			case named[s.Name]:
				err = q.below(s.SelectionSet, outOfIt, depth+1)
			default:
				err = errGraphQL
			}
		case *ast.InlineFragment:
			err = q.below(s.SelectionSet, place, depth+1)
		case *ast.FragmentSpread:
			var f *ast.FragmentDefinition
			if f, err = q.spread(s.Name, place); f != nil {
				err = q.below(f.SelectionSet, place, depth+1)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spread returns a fragment that was not read in this place yet, and nil for one
// that was.
func (q *graphQLQuery) spread(name string, place int) (*ast.FragmentDefinition, error) {
	f := q.fragments.ForName(name)
	if f == nil {
		return nil, errGraphQL
	}
	v := visit{name, place}
	if q.visited[v] {
		return nil, nil
	}
	q.visited[v] = true
	return f, nil
}
