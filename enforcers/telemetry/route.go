package telemetry

import (
	"net/http"
	"strings"
)

// format is how a route's messages are written.
type format int

const (
	otlpAny format = iota // by content type
	otlpProtobuf
	otlpJSON
	ingestion
	envelope
)

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
	envelopeType = "application/x-sentry-envelope"
)

// route is one write path of a sink.
type route struct {
	path   string // sent, below the sink's base
	format format
	signal string // traces | metrics | logs
}

// signals are what OTLP carries, by the end of their path.
var signals = []string{"traces", "metrics", "logs"}

// route finds what a method and path write, if they write anything.
func (s *sink) route(method, path string) (route, bool) {
	if method != http.MethodPost {
		return route{}, false
	}
	switch s.Provider {
	case "otlp":
		for _, signal := range signals {
			if path == "/v1/"+signal {
				return route{path: path, signal: signal}, true
			}
		}
	case "langfuse":
		switch path {
		case "/api/public/otel/v1/traces":
			return route{path: path, signal: "traces"}, true
		case "/api/public/ingestion":
			return route{path: path, format: ingestion}, true
		}
	case "sentry":
		// ME-21: what names another project is no route at all.
		project, ok := strings.CutPrefix(path, "/api/")
		if project, ok2 := strings.CutSuffix(strings.TrimSuffix(project, "/"), "/envelope"); ok && ok2 && (project == localProject || project == s.project) {
			return route{path: "/api/" + s.project + "/envelope/", format: envelope}, true
		}
	}
	return route{}, false
}
