package model

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Google GenAI and Vertex Gemini: :generateContent, :streamGenerateContent and
// the free :countTokens. Their JSON may be written with either spelling of a
// name, max_output_tokens or maxOutputTokens.

// camel is obj for names in either spelling. Both spellings of one name are a
// key that stands twice.
func camel(f fields) rule {
	return func(r *request, v *value) {
		if r.want(v, object) {
			r.camel(v, f)
		}
	}
}

func (r *request) camel(v *value, f fields) {
	seen := map[string]bool{}
	for i := range v.keys {
		name := toCamel(v.keys[i].name)
		if seen[name] {
			r.refuse(CodeBody, "twice")
			return
		}
		seen[name] = true
		if v.keys[i].kind == null {
			continue
		}
		judge, ok := f[name]
		if !ok {
			r.unlisted("field", v.keys[i].name)
			return
		}
		judge(r, &v.keys[i].value)
	}
}

func toCamel(s string) string {
	parts := strings.Split(s, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}

// member finds a member in either spelling.
func (v *value) member(name string) *value {
	for i := range v.keys {
		if toCamel(v.keys[i].name) == name && v.keys[i].kind != null {
			return &v.keys[i].value
		}
	}
	return nil
}

// inlineData and fileData are media in the body and media by URL.
func inlineData(r *request, v *value) {
	camel(fields{"mimeType": aText, "data": aDocument, "displayName": aText})(r, v)
	priced(r, v, CodeBody)
}

// A file's type may be absent for the provider, which then finds it out itself;
// for the price table it may not.
func fileData(r *request, v *value) {
	camel(fields{"fileUri": httpsURL, "mimeType": aText, "displayName": aText})(r, v)
	priced(r, v, CodeMedia)
	r.refuse(CodeSource, "url") // the provider would fetch it
}

// priced holds the type of media against what the table prices as plain input:
// no audio, no video. absent is the code for media without a type.
func priced(r *request, v *value, absent string) {
	kind := v.member("mimeType")
	if kind == nil || kind.kind != text {
		r.refuse(absent, "mimeType")
		return
	}
	if t := strings.ToLower(kind.str); !strings.HasPrefix(t, "image/") && !strings.HasPrefix(t, "text/") && t != "application/pdf" && t != "application/json" {
		r.refuse(CodeMedia, "mimeType")
	}
}

var functionResponse = camel(fields{
	"id": aText, "name": aText, "response": anything, "willContinue": aBoolean, "scheduling": aText,
	"parts": list(camel(fields{"inlineData": inlineData})),
})

var googlePart = camel(fields{
	"text": aText, "thought": aBoolean, "thoughtSignature": aText, "inlineData": inlineData, "videoMetadata": never(CodeMedia),
	"functionCall":     camel(fields{"id": aText, "name": aText, "args": anything, "partialArgs": anything, "willContinue": aBoolean}),
	"functionResponse": functionResponse, "fileData": fileData,
	"executableCode": never(CodeTool), "codeExecutionResult": never(CodeTool), "mediaResolution": anything,
})

var googleContent = camel(fields{"role": aText, "parts": list(googlePart)})

var googleTool = func(r *request, v *value) {
	if !r.want(v, object) {
		return
	}
	for i := range v.keys {
		if n := toCamel(v.keys[i].name); n != "functionDeclarations" && v.keys[i].kind != null {
			r.refuse(CodeTool, "tool") // googleSearch, urlContext, codeExecution, retrieval, googleMaps, mcpServers
			return
		}
	}
}

func theThinking(r *request, v *value) {
	camel(fields{"thinkingBudget": aNumber, "includeThoughts": aBoolean, "thinkingLevel": aText})(r, v)
}

var generationConfig = fields{
	"maxOutputTokens": askedTokens, "candidateCount": theAnswers, "temperature": aNumber, "topP": aNumber, "topK": aNumber,
	"stopSequences": list(aText), "responseMimeType": aText, "responseSchema": anything, "responseJsonSchema": anything,
	"presencePenalty": aNumber, "frequencyPenalty": aNumber, "seed": aNumber, "responseLogprobs": aBoolean, "logprobs": aNumber,
	"thinkingConfig": theThinking, "mediaResolution": aText, "responseModalities": list(only(CodeMedia, "TEXT")),
	"speechConfig": never(CodeMedia), "imageConfig": never(CodeMedia), "audioTimestamp": never(CodeMedia),
}

var googleBody = fields{
	"contents": list(googleContent), "systemInstruction": googleContent, "generationConfig": camel(generationConfig),
	"tools": list(googleTool), "toolConfig": camel(fields{"functionCallingConfig": anything}), "safetySettings": anything, "labels": anything,
	"cachedContent": never(CodeFeature), // ME-10
}

var googleCount = fields{
	"contents": list(googleContent), "systemInstruction": googleContent, "tools": list(googleTool),
	"generateContentRequest": never(CodeField), "generationConfig": camel(generationConfig),
}

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.@_-]{0,127}$`)

// verb reads "<model>:<method>".
func verb(s string) (model, method string, ok bool) {
	model, method, ok = strings.Cut(s, ":")
	return model, method, ok && modelName.MatchString(model)
}

// gemini is Google GenAI by key, and Gemini on Vertex by project and location.
type gemini struct{ project, location string } // empty for the Gemini API

func (g gemini) provider() string {
	if g.project != "" {
		return "vertex-gemini"
	}
	return "google"
}

func (gemini) prices() string { return "google" }

func (g gemini) route(method, path string) (route, string) {
	at, code := path, ""
	if g.project != "" {
		at, code = place(path, g.project, g.location, "google")
	} else {
		at, code = unversioned(path)
	}
	if code != "" {
		return route{}, code
	}
	name, ok := strings.CutPrefix(at, "models/")
	model, what, named := verb(name)
	if !ok || !named || method != "POST" {
		return route{}, CodeRoute
	}
	switch what {
	case "generateContent":
		return route{path: path, model: model}, ""
	case "streamGenerateContent":
		return route{path: path, model: model, stream: true, needs: "alt=sse"}, ""
	case "countTokens":
		return route{path: path, model: model, free: true}, ""
	case "batchGenerateContent", "asyncBatchEmbedContent":
		return route{}, CodeFeature
	default:
		return route{}, CodeRoute
	}
}

// unversioned takes the API version off a path of the Gemini API.
func unversioned(path string) (string, string) {
	for _, v := range []string{"/v1beta/", "/v1/", "/v1alpha/"} {
		if rest, ok := strings.CutPrefix(path, v); ok {
			if strings.HasPrefix(rest, "cachedContents") || strings.HasPrefix(rest, "files") || strings.HasPrefix(rest, "batches") {
				return "", CodeFeature // ME-10
			}
			return rest, ""
		}
	}
	if strings.HasPrefix(path, "/upload/") {
		return "", CodeFeature
	}
	return "", CodeRoute
}

func (gemini) query(pair string) bool { return pair == "alt=sse" }

func (gemini) inspect(r *request, rt route) {
	if rt.free {
		r.camel(r.root, googleCount)
		return
	}
	r.camel(r.root, googleBody)
	config := r.root.member("generationConfig")
	r.bound = func(n int64) edit {
		if config == nil {
			return r.set("generationConfig", `{"maxOutputTokens":`+itoa(n)+`}`)
		}
		return config.setIn("maxOutputTokens", itoa(n))
	}
}

func (gemini) usage() meter { return &googleUsage{} }

// googleTokens counts cached tokens inside those of the prompt, and thoughts
// beside those of the candidates.
type googleTokens struct {
	Prompt     int64 `json:"promptTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	Tools      int64 `json:"toolUsePromptTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
	Total      int64 `json:"totalTokenCount"`

	PromptBy     []googleModality `json:"promptTokensDetails"`
	CachedBy     []googleModality `json:"cacheTokensDetails"`
	ToolsBy      []googleModality `json:"toolUsePromptTokensDetails"`
	CandidatesBy []googleModality `json:"candidatesTokensDetails"`
}

type googleModality struct {
	Modality string `json:"modality"`
}

// unpriced tells whether a modality was served that the table has no rate of:
// a file may hold something else than its type says.
func (u *googleTokens) unpriced() bool {
	read := func(m googleModality) bool {
		return !slices.Contains([]string{"TEXT", "IMAGE", "DOCUMENT"}, m.Modality)
	}
	return slices.ContainsFunc(slices.Concat(u.PromptBy, u.CachedBy, u.ToolsBy), read) ||
		slices.ContainsFunc(u.CandidatesBy, func(m googleModality) bool { return m.Modality != "TEXT" })
}

type googleAnswer struct {
	Candidates []struct {
		Finish string `json:"finishReason"`
	} `json:"candidates"`
	Feedback *struct{}     `json:"promptFeedback"`
	Usage    *googleTokens `json:"usageMetadata"`
	Version  string        `json:"modelVersion"`
}

type googleUsage struct {
	r            report
	told, finish bool
}

func (g *googleUsage) take(a *googleAnswer) {
	for _, c := range a.Candidates {
		g.finish = g.finish || c.Finish != ""
	}
	g.finish = g.finish || a.Feedback != nil
	if a.Version != "" {
		g.r.model = a.Version
	}
	u := a.Usage
	if u == nil {
		return
	}
	in, cached := u.Prompt+u.Tools, u.Cached
	if cached < 0 || cached > in {
		cached = 0
	}
	// The newest numbers are the ones that count.
	g.r.Input, g.r.CacheRead, g.r.Output = in-cached, cached, max(u.Candidates+u.Thoughts, u.Total-in)
	g.r.media = g.r.media || u.unpriced()
	g.told = true
}

func (g *googleUsage) event(data []byte) {
	var a googleAnswer
	if json.Unmarshal(data, &a) == nil {
		g.take(&a)
	}
}

func (g *googleUsage) body(b []byte) { g.event(b); g.end() }

// end is a stream's orderly end: until then more tokens may come.
func (g *googleUsage) end() { g.r.final = g.told && g.finish }

func (g *googleUsage) report() report { return g.r }
