package model

import (
	"fmt"
	"regexp"
	"strings"

	"gatehouse/internal/problem"
)

// Vertex AI: the same two protocols under a project's and a location's path,
// which are the connection's own and no other.

// place takes the project, the location and the publisher off a path. ME-09:
// they must be the connection's, in their only spelling.
func place(path, project, location, publisher string) (rest, code string) {
	for _, v := range []string{"/v1/", "/v1beta1/"} {
		rest, ok := strings.CutPrefix(path, v)
		if !ok {
			continue
		}
		rest, ok = strings.CutPrefix(rest, "projects/"+project+"/locations/"+location+"/")
		if !ok {
			return "", CodePlace
		}
		switch head, _, _ := strings.Cut(rest, "/"); head {
		case "publishers":
		case "cachedContents", "batchPredictionJobs", "ragCorpora":
			return "", CodeFeature
		default:
			return "", CodeRoute
		}
		if rest, ok = strings.CutPrefix(rest, "publishers/"+publisher+"/"); !ok {
			return "", CodePlace
		}
		return rest, ""
	}
	return "", CodeRoute
}

// vertexHost returns the host of a location.
func vertexHost(c Connection) (string, error) {
	switch {
	case c.Project == "" || c.Location == "":
		return "", problem.New(problem.ConfigInvalid, fmt.Sprintf("connection %s: a Vertex connection needs project and location", c.Name), "")
	case c.Location == "global":
		return "aiplatform.googleapis.com", nil
	case c.Location == "us" || c.Location == "eu":
		return "aiplatform." + c.Location + ".rep.googleapis.com", nil
	default:
		return c.Location + "-aiplatform.googleapis.com", nil
	}
}

// claude is Anthropic's models on Vertex: the model stands in the path, the
// version in the body.
type claude struct {
	anthropic
	project, location string
}

func (claude) provider() string { return "vertex-anthropic" }
func (claude) prices() string   { return "vertex" }

func (c claude) route(method, path string) (route, string) {
	at, code := place(path, c.project, c.location, "anthropic")
	if code != "" {
		return route{}, code
	}
	name, ok := strings.CutPrefix(at, "models/")
	model, what, named := verb(name)
	switch {
	case !ok || !named || method != "POST":
		return route{}, CodeRoute
	case model == "count-tokens" && what == "rawPredict":
		return route{path: path, free: true}, ""
	case what == "rawPredict", what == "streamRawPredict":
		return route{path: path, model: model, stream: what == "streamRawPredict"}, ""
	default:
		return route{}, CodeRoute
	}
}

// vertexVersion is a date, with or without its prefix: SDKs differ.
var vertexVersion = regexp.MustCompile(`^(vertex-)?20[0-9]{2}-[0-9]{2}-[0-9]{2}$`)

var vertexBody = func() fields {
	f := fields{"anthropic_version": func(r *request, v *value) {
		if r.want(v, text) && !vertexVersion.MatchString(v.str) {
			r.refuse(CodeBody, "anthropic_version")
		}
	}}
	for name, judge := range anthropicBody {
		f[name] = judge
	}
	return f
}()

func (claude) inspect(r *request, rt route) {
	if !rt.free && r.root.get("model") != nil {
		r.refuse(CodeField, "model") // ME-08: the path names it
		return
	}
	r.members(r.root, vertexBody)
	r.stream = r.stream || rt.stream
	r.bound = func(n int64) edit { return r.set("max_tokens", itoa(n)) }
}
