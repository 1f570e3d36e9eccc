package operations

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"gatehouse/internal/problem"
)

var (
	slot    = regexp.MustCompile(`^\{([a-z][a-z0-9_]*)\}$`)
	literal = regexp.MustCompile(`^[A-Za-z0-9._~-]*$`)
)

// CheckPath reports whether a declared path has only plain segments and slots.
func CheckPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("path begins with /")
	}
	for seg := range strings.SplitSeq(path[1:], "/") {
		if seg == "." || seg == ".." || !slot.MatchString(seg) && !literal.MatchString(seg) {
			return fmt.Errorf("path segment %q is neither plain nor {argument}", seg)
		}
	}
	return nil
}

// FillPath puts arguments into a declared path and returns those that are left. An
// argument fills one segment, whatever is in it.
func FillPath(path string, args map[string]any) (string, map[string]any, error) {
	rest := map[string]any{}
	for k, v := range args {
		rest[k] = v
	}
	segs := strings.Split(path, "/")
	for i, seg := range segs {
		m := slot.FindStringSubmatch(seg)
		if m == nil {
			continue
		}
		v, ok := args[m[1]]
		s, plain := Plain(v)
		if !ok || !plain || s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\\%;?#") {
			return "", nil, problem.New(CodeArguments, m[1]+" is not one part of a path", "Send a plain name or number.")
		}
		segs[i] = url.PathEscape(s)
		delete(rest, m[1])
	}
	return strings.Join(segs, "/"), rest, nil
}

// Plain writes an argument that is a word, a number or a truth value.
func Plain(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case json.Number:
		return x.String(), true
	case bool:
		return fmt.Sprint(x), true
	}
	return "", false
}
