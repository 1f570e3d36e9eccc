package demo

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed payloads/workflow_run__completed.json
var workflowRun []byte

// RepositoryID is the numeric id of the payload's repository, and Repository
// the name that the node's configuration gives it.
const (
	RepositoryID = "300029405"
	Repository   = "org-03/octo-repo"
)

// Failure returns a delivery that a failed run in the repository itself would
// send. Runs of one number are the same run.
func Failure(run int64) ([]byte, error) { return derive(run, false) }

// Fork returns the same from a fork: the head repository is another one.
func Fork(run int64) ([]byte, error) { return derive(run, true) }

func derive(run int64, fork bool) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(workflowRun))
	dec.UseNumber() // ids must come out as they went in
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("embedded payload: %w", err)
	}
	w, ok := doc["workflow_run"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("embedded payload has no workflow_run")
	}
	w["conclusion"] = "failure"
	w["id"] = run
	if fork {
		head, ok := w["head_repository"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("embedded payload has no head_repository")
		}
		head["id"] = 999999999
	}
	return json.Marshal(doc)
}
