// Package webhook has the operations webhook.send.NAME: a message to a fixed
// receiver, signed as Standard Webhooks has it. It reads valid arguments, which
// are the message, and writes one POST through a Remote.
//
// It must never take an address from arguments, send a message without its
// signature, or return the receiver's answer.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Prefix begins the names of these operations; the receiver's name follows.
const Prefix = "webhook.send."

// secretPrefix is how Standard Webhooks writes a secret.
const secretPrefix = "whsec_"

// Receiver is one declared receiver.
type Receiver struct {
	Name    string // the operation's, Prefix included
	Summary string
	Remote  *operations.Remote
	Path    string          // escaped
	Schema  json.RawMessage // of the message
	Calls   int             // in one session, 0 = 20
	Secret  secret.Value    // whsec_ and base64
	Clock   func() time.Time
}

// Operation returns the operation, or says what is wrong with the declaration.
func (r *Receiver) Operation() (operations.Operation, error) {
	if _, err := key(r.Secret); err != nil {
		return operations.Operation{}, err
	}
	calls := r.Calls
	if calls == 0 {
		calls = 20
	}
	// The receiver tells a repeated message by its id: trying again is no second one.
	return operations.Operation{Name: r.Name, Summary: r.Summary, Schema: r.Schema, Limits: operations.Limits{Calls: calls, Minute: 10}, Do: r.send}, nil
}

func key(v secret.Value) ([]byte, error) {
	coded, ok := strings.CutPrefix(string(v.Reveal()), secretPrefix)
	b, err := base64.StdEncoding.DecodeString(coded)
	if !ok || err != nil || len(b) < 24 {
		return nil, problem.New(problem.ConfigInvalid, "a webhook's credential is whsec_ and at least 24 bytes of base64", "make one: echo whsec_$(openssl rand -base64 32)")
	}
	return b, nil
}

func (r *Receiver) send(ctx context.Context, c *operations.Call) (any, error) {
	k, err := key(r.Secret)
	if err != nil {
		return nil, err
	}
	c.Watch(r.Secret)
	id, at := "msg_"+strings.ReplaceAll(r.Remote.ID(c, r.Name), "-", ""), strconv.FormatInt(r.Clock().Unix(), 10)
	mac := hmac.New(sha256.New, k)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, c.Args)
	_, err = r.Remote.Send(ctx, c, operations.Request{
		Method: http.MethodPost, Path: r.Path, Body: c.Args,
		Header: http.Header{
			"Webhook-Id": {id}, "Webhook-Timestamp": {at},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
		},
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": id}, nil
}
