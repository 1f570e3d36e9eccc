package telemetry

import (
	"slices"
	"strings"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requestOf returns an empty request of a signal. On the wire an export request
// is the same as the signal's data.
func requestOf(signal string) proto.Message {
	switch signal {
	case "metrics":
		return &metrics.MetricsData{}
	case "logs":
		return &logs.LogsData{}
	}
	return &trace.TracesData{}
}

// protobuf rewrites an export request. Fields that are not in the schema do not
// go on.
func (id identity) protobuf(signal string, b []byte) ([]byte, string) {
	m := requestOf(signal)
	left := maxItems
	if !bounded(b, m.ProtoReflect().Descriptor(), maxDepth, &left) {
		if left < 0 {
			return nil, CodeSize
		}
		return nil, CodeBody
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, m); err != nil {
		return nil, CodeBody
	}
	strip(m.ProtoReflect())
	switch m := m.(type) {
	case *trace.TracesData:
		for _, r := range m.ResourceSpans {
			r.Resource = id.resource(r.Resource)
		}
	case *metrics.MetricsData:
		for _, r := range m.ResourceMetrics {
			r.Resource = id.resource(r.Resource)
		}
	case *logs.LogsData:
		for _, r := range m.ResourceLogs {
			r.Resource = id.resource(r.Resource)
		}
	}
	out, err := proto.Marshal(m)
	if err != nil {
		return nil, CodeBody
	}
	return out, ""
}

// bounded walks a message by its schema without decoding it: one that is small
// on the wire can be large in memory.
func bounded(b []byte, d protoreflect.MessageDescriptor, depth int, left *int) bool {
	if depth == 0 {
		return false
	}
	for len(b) > 0 {
		if *left--; *left < 0 {
			return false
		}
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 || kind == protowire.StartGroupType {
			return false
		}
		b = b[size:]
		size = protowire.ConsumeFieldValue(n, kind, b)
		if size < 0 {
			return false
		}
		f := d.Fields().ByNumber(n)
		if f != nil && f.Kind() == protoreflect.MessageKind && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if !bounded(v, f.Message(), depth-1, left) {
				return false
			}
		}
		b = b[size:]
	}
	return true
}

// strip removes reserved names from every list of attributes below m.
func strip(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind:
		case f.IsMap(): // OTLP has none
		case f.IsList():
			list := v.List()
			kept := 0
			for i := range list.Len() {
				one := list.Get(i)
				if kv, ok := one.Message().Interface().(*common.KeyValue); ok && reserved(kv.GetKey()) {
					continue
				}
				strip(one.Message())
				list.Set(kept, one)
				kept++
			}
			list.Truncate(kept)
		default:
			strip(v.Message())
		}
		return true
	})
}

// serviceName is who reports, in OpenTelemetry's words. It is the bundle: what
// a program calls itself inside is its own word.
const serviceName = "service.name"

// attributes are what every report says of its session.
func (id identity) attributes() [][2]string {
	return [][2]string{{serviceName, id.bundle}, {"session.id", id.session}, {sessionName, id.session}, {bundleName, id.bundle}}
}

func (id identity) resource(r *resource.Resource) *resource.Resource {
	if r == nil {
		r = &resource.Resource{}
	}
	r.Attributes = slices.DeleteFunc(r.Attributes, func(kv *common.KeyValue) bool { return kv.GetKey() == serviceName || reserved(kv.GetKey()) })
	for _, a := range id.attributes() {
		r.Attributes = append(r.Attributes, &common.KeyValue{Key: a[0], Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: a[1]}}})
	}
	return r
}

// json rewrites an export request in OTLP's JSON. Its two upper levels are
// closed; below them only names of attributes are looked at.
func (id identity) json(signal string, b []byte) ([]byte, string) {
	root, ok := object(b)
	if !ok {
		return nil, CodeBody
	}
	list := spelled(root, "resource_"+kindOf(signal))
	if list == "" || len(root) != 1 {
		return nil, CodeBody
	}
	all, ok := root[list].([]any)
	if !ok {
		return nil, CodeBody
	}
	for _, one := range all {
		r, ok := one.(map[string]any)
		if !ok {
			return nil, CodeBody
		}
		scopes, schema := spelled(r, "scope_"+kindOf(signal)), spelled(r, "schema_url")
		for k := range r {
			if k != "resource" && k != scopes && k != schema {
				return nil, CodeBody
			}
		}
		stripJSON(r)
		res, ok := r["resource"].(map[string]any)
		if !ok {
			if r["resource"] != nil {
				return nil, CodeBody
			}
			res = map[string]any{}
		}
		attrs, ok := res["attributes"].([]any)
		if !ok && res["attributes"] != nil {
			return nil, CodeBody
		}
		attrs = slices.DeleteFunc(attrs, func(v any) bool { m, ok := v.(map[string]any); return ok && m["key"] == serviceName })
		for _, a := range id.attributes() {
			attrs = append(attrs, map[string]any{"key": a[0], "value": map[string]any{"stringValue": a[1]}})
		}
		res["attributes"] = attrs
		r["resource"] = res
	}
	out, err := encode(root)
	if err != nil {
		return nil, CodeBody
	}
	return out, ""
}

// kindOf is the word that stands in a signal's fields.
func kindOf(signal string) string {
	if signal == "traces" {
		return "spans"
	}
	return signal
}

// spelled returns how a field stands in m, "" if it does not: readers take both
// spellings, so only one may be there.
func spelled(m map[string]any, snake string) string {
	before, after, _ := strings.Cut(snake, "_")
	camel := before + strings.ToUpper(after[:1]) + after[1:]
	_, one := m[snake]
	_, other := m[camel]
	switch {
	case one && other:
		return ""
	case one:
		return snake
	case other:
		return camel
	}
	return ""
}

// stripJSON removes reserved names from every list of attributes below v.
func stripJSON(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			if list, ok := one.([]any); ok {
				v[k] = slices.DeleteFunc(list, func(x any) bool {
					m, ok := x.(map[string]any)
					if !ok {
						return false
					}
					key, ok := m["key"].(string)
					return ok && reserved(key)
				})
			}
			stripJSON(v[k])
		}
	case []any:
		for _, one := range v {
			stripJSON(one)
		}
	}
}
