// Command dlp is an example enforcer: it denies requests whose body matches a
// configured pattern. Params:
//
//	{"max_body":16384,"patterns":[{"name":"aws_key","regexp":"AKIA[0-9A-Z]{16}"}]}
//
// It sees bodies whole and decoded, or not at all: a body that is longer than
// max_body, or that the door could not decode, is denied, because a pattern
// that was not looked for was not found. It does not see through encryption,
// archives, or an encoding the agent makes up.
package main

import (
	"encoding/json"
	"errors"
	"regexp"

	gatehouse "gatehouse/wasm/sdk/go"
)

func main() {}

var _ = gatehouse.Register(&dlp{})

type dlp struct {
	maxBody  int
	patterns []pattern
}

type pattern struct {
	name string
	re   *regexp.Regexp
}

func (d *dlp) Describe() gatehouse.Description {
	return gatehouse.Description{Actions: []string{"http.request"}, Body: "whole", BodyBytes: d.maxBody, Name: "dlp", Version: "1"}
}

func (d *dlp) Configure(_, params json.RawMessage) error {
	var p struct {
		MaxBody  int `json:"max_body"`
		Patterns []struct{ Name, Regexp string }
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	if p.MaxBody <= 0 || len(p.Patterns) == 0 {
		return errors.New("max_body and patterns are required")
	}
	*d = dlp{maxBody: p.MaxBody}
	for _, in := range p.Patterns {
		re, err := regexp.Compile(in.Regexp)
		if err != nil {
			return err
		}
		// A first search builds what the matcher keeps; see gatehouse.Enforcer.
		re.Match([]byte("warm up"))
		d.patterns = append(d.patterns, pattern{in.Name, re})
	}
	return nil
}

func (d *dlp) Decide(a *gatehouse.Action) gatehouse.Verdict {
	body := a.HTTP.Body
	switch {
	case body.Mode == "none":
		return gatehouse.Abstain("dlp", "no_body")
	case body.Mode != "whole" || len(body.Bytes) > d.maxBody:
		return gatehouse.Deny("dlp", "body_not_inspectable")
	}
	for _, p := range d.patterns {
		if p.re.Match(body.Bytes) {
			return gatehouse.Deny("dlp."+p.name, "pattern_found")
		}
	}
	return gatehouse.Abstain("dlp", "nothing_found")
}
