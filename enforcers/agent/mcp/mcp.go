// Package mcp is the agent's endpoint for clients that speak the Model Context
// Protocol: http://gatehouse.internal/mcp, streamable HTTP. Each tool is one
// resource of the endpoint below /agent/v1/: the same handler runs, asks the
// same gate and writes the same receipts, so that neither way can do what the
// other refuses. It keeps no state between requests and sends nothing by
// itself.
//
// It must never offer a tool that the endpoint has no resource for, or take a
// session from a request.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatehouse/enforcers/agent"
	"gatehouse/enforcers/door"
)

// Path is where the endpoint is on the door's own host.
const Path = "/mcp"

// URL is where clients inside find it.
const URL = "http://" + door.Reserved + Path

// quiet takes what the library says of every request: receipts say it better.
var quiet = slog.New(slog.DiscardHandler)

// maxBody bounds one request.
const maxBody = 1 << 20

const instructions = "This session runs behind Gatehouse. describe_session says what it may reach. A refusal is final for this session: " +
	"explain_refusal says why, request_access lets a reviewer know. There is no key in this sandbox and none is needed."

// Route returns the route that answers MCP clients of one session. endpoint is
// the session's route below agent.Root.
func Route(endpoint door.Route, log *slog.Logger) door.Route {
	schemas := mcp.NewSchemaCache()
	return door.Route{
		Match: func(r *door.Request) bool { return r.To.Host() == door.Reserved && r.Path == Path },
		Handler: door.HandlerFunc(func(w http.ResponseWriter, r *door.Request) {
			t := &tools{endpoint.Handler, r}
			// One server for one request: it knows no session but the door's own.
			h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return t.server(schemas, log) }, &mcp.StreamableHTTPOptions{
				Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody, Logger: quiet,
			})
			h.ServeHTTP(w, r.Request)
		}),
	}
}

// tools are the tools of one request.
type tools struct {
	endpoint door.Handler
	r        *door.Request
}

// tool is one tool: what it takes, and the request that it is.
type tool struct {
	name, title, description, schema string
	calls                            func(args json.RawMessage) ([]call, error)
}

// call is one request to the agent's endpoint, and the name of its answer in a
// tool's result; "" = it is the result.
type call struct {
	as, method, path, key string
	body                  []byte
}

var all = []tool{
	{"describe_session", "Describe the session", "What this session is, which hosts, operations and child bundles it may use, and when it ends.",
		`{"type":"object","additionalProperties":false}`,
		func(args json.RawMessage) ([]call, error) {
			return []call{{as: "session", method: http.MethodGet, path: "session"}, {as: "operations", method: http.MethodGet, path: "operations"}},
				strict(args, &struct{}{})
		}},
	{"explain_refusal", "Explain a refusal", "Why a refused action came out as it did. Takes the receipt that stood in the refusal.",
		`{"type":"object","additionalProperties":false,"required":["receipt"],"properties":{"receipt":{"type":"string","maxLength":64}}}`,
		func(args json.RawMessage) ([]call, error) {
			var a struct {
				Receipt string `json:"receipt"`
			}
			err := strict(args, &a)
			return []call{{method: http.MethodGet, path: "explain/" + url.PathEscape(a.Receipt)}}, err
		}},
	{"run_operation", "Run an operation", "Has a named operation carried out outside; describe_session lists them with their arguments. The same key with the same arguments has no second effect.",
		`{"type":"object","additionalProperties":false,"required":["name","key","arguments"],"properties":{"name":{"type":"string","maxLength":64},` +
			`"key":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"your own, new for each new call"},"arguments":{"type":"object"}}}`,
		func(args json.RawMessage) ([]call, error) {
			var a struct {
				Name      string          `json:"name"`
				Key       string          `json:"key"`
				Arguments json.RawMessage `json:"arguments"`
			}
			err := strict(args, &a)
			return []call{{method: http.MethodPost, path: "operations/" + url.PathEscape(a.Name), key: a.Key, body: a.Arguments}}, err
		}},
	{"spawn_child", "Start a child session", "Starts a session of another bundle that this one may start. It gets no words of yours.",
		`{"type":"object","additionalProperties":false,"required":["bundle"],"properties":{"bundle":{"type":"string","maxLength":63}}}`,
		func(args json.RawMessage) ([]call, error) {
			return []call{{method: http.MethodPost, path: "children", body: args}}, nil
		}},
	{"request_access", "Ask a reviewer for access", "Lets a reviewer know that an action was refused which the task needs. Takes the refusal's receipt; grants nothing.",
		`{"type":"object","additionalProperties":false,"required":["receipt"],"properties":{"receipt":{"type":"string","maxLength":64}}}`,
		func(args json.RawMessage) ([]call, error) {
			return []call{{method: http.MethodPost, path: "access", body: args}}, nil
		}},
}

// strict decodes one object of known fields.
func strict(args json.RawMessage, v any) error {
	if len(args) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func (t *tools) server(schemas *mcp.SchemaCache, log *slog.Logger) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "gatehouse", Version: "1"}, &mcp.ServerOptions{
		Instructions: instructions, Logger: quiet, SchemaCache: schemas, Capabilities: &mcp.ServerCapabilities{},
	})
	for _, one := range all {
		s.AddTool(&mcp.Tool{Name: one.name, Title: one.title, Description: one.description, InputSchema: json.RawMessage(one.schema)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return t.guarded(ctx, one, req.Params.Arguments, log), nil
			})
	}
	return s
}

// codeArguments refuses arguments that a tool does not take.
const codeArguments = "tool_arguments"

// guarded is run that outlives its own faults: the library calls tools where a
// panic would end the node. Faults of the endpoint never come this far.
func (t *tools) guarded(ctx context.Context, one tool, args json.RawMessage, log *slog.Logger) (r *mcp.CallToolResult) {
	defer func() {
		if v := recover(); v != nil {
			if log != nil {
				log.ErrorContext(ctx, "mcp.panic", slog.String("tool", one.name), slog.Any("value", v), slog.String("stack", string(debug.Stack())))
			}
			r = result([]byte(`{"code":"internal"}`), true)
		}
	}()
	return t.run(ctx, one, args)
}

// run makes a tool's requests of the endpoint. A refusal is a result that says
// so, with the endpoint's own words, code and receipt: a model must see it.
func (t *tools) run(ctx context.Context, one tool, args json.RawMessage) *mcp.CallToolResult {
	calls, err := one.calls(args)
	if err != nil {
		return result([]byte(`{"code":"`+codeArguments+`","hint":"Send exactly the arguments that the tool's schema names."}`), true)
	}
	parts := map[string]json.RawMessage{}
	for _, c := range calls {
		status, body := t.ask(ctx, c)
		if status >= 400 || c.as == "" {
			return result(body, status >= 400)
		}
		parts[c.as] = body
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return result([]byte(`{"code":"internal"}`), true)
	}
	return result(b, false)
}

func result(b []byte, failed bool) *mcp.CallToolResult {
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}, IsError: failed}
	if json.Valid(b) {
		r.StructuredContent = json.RawMessage(b)
	}
	return r
}

// ask makes one request of the endpoint. It stays in the process: the door and
// the gate are those that the tool's own request came by.
func (t *tools) ask(ctx context.Context, c call) (int, []byte) {
	inner := *t.r
	inner.Request = t.r.Request.Clone(ctx)
	inner.Method, inner.Path, inner.Query = c.method, agent.Root+c.path, ""
	inner.URL = &url.URL{Path: inner.Path}
	inner.Header = http.Header{"Content-Type": {"application/json"}}
	if c.key != "" {
		inner.Header.Set("Idempotency-Key", c.key)
	}
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	w := &answer{header: http.Header{}}
	t.endpoint.ServeDoor(w, &inner)
	return w.status, bytes.TrimSpace(w.body.Bytes())
}

// answer keeps what the endpoint answers.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
