package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Head is what a fold over many events needs of each: the envelope without data.
type Head struct {
	ID         string
	Source     string
	Endpoint   string
	Delivery   string
	BodySHA256 string
	SameSHA256 string
	Received   time.Time
}

var (
	headStart = []byte(`{"actorlevel":"`)
	tailStart = []byte(`,"datacontenttype":"`)
	dataStart = []byte(`,"data":{`)
)

// ReadHead reads the envelope of an event that Encode wrote and this node kept.
// It does not look into data, so it says nothing about its labels: decide on
// Decode. The attributes after data hold closed forms only, so the last
// occurrence of the first of them is theirs.
func ReadHead(b []byte) (Head, error) {
	data, tail := bytes.Index(b, dataStart), bytes.LastIndex(b, tailStart)
	if !bytes.HasPrefix(b, headStart) || data < 0 || tail < data {
		return Head{}, fmt.Errorf("read event head: %w", errNotCanonical)
	}
	head := append(append([]byte{}, b[:data]...), b[tail:]...)
	var w wire
	if err := json.Unmarshal(head, &w); err != nil {
		return Head{}, fmt.Errorf("read event head: %w", err)
	}
	return Head{ID: w.ID, Source: sourceOf(w.Source), Endpoint: w.Endpoint, Delivery: w.Delivery,
		BodySHA256: w.BodySHA256, SameSHA256: w.SameSHA256, Received: w.Received.UTC()}, nil
}
