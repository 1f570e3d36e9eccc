package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"gatehouse/internal/problem"
)

// NodeCommands act on the node as a whole. They are served on the unix socket
// alone and are no part of the operator API: who may use them is who may open
// the socket's file.
type NodeCommands interface {
	// Check folds the archive again and compares streams and views with it.
	Check(ctx context.Context) (Checked, error)
	// Backup copies the state into a folder of the node's machine that does not
	// exist yet.
	Backup(ctx context.Context, dir string, by Actor) (Backup, error)
	// Drain takes no more deliveries and events and returns when the sessions
	// have ended, or limit has passed; the node stops then.
	Drain(ctx context.Context, limit time.Duration, by Actor) (Drained, error)
	// PullImage fetches an image by its digest from its registry.
	PullImage(ctx context.Context, wish ImageWish, by Actor) (PulledImage, error)
}

// ImageWish names an image and what may be asked on the way to it.
type ImageWish struct {
	Image      string   // REGISTRY/NAME@sha256:DIGEST
	Connection string   // kind http, for the registry or who gives out its tokens; "" = none
	Also       []string // further hosts that the registry may send to
	MaxMiB     int64
}

// PulledImage is an image that lies in the node's images/ folder.
type PulledImage struct {
	Image  string `json:"image"`
	Layout string `json:"layout"`
	Layers int    `json:"layers"`
	Bytes  int64  `json:"bytes"`
}

// Checked is what a check compared.
type Checked struct {
	First       uint64   `json:"first"` // journal positions of the archive
	Last        uint64   `json:"last"`
	Messages    uint64   `json:"messages"` // on the streams
	Others      uint64   `json:"others"`   // of them sealed by other nodes: theirs to check
	Sessions    int      `json:"sessions"`
	Events      int      `json:"events"`
	Bundles     int      `json:"bundles"`
	Differences []string `json:"differences,omitempty"`
}

// Backup is what a backup holds.
type Backup struct {
	Dir    string `json:"dir"`
	Origin string `json:"origin"`
	Last   uint64 `json:"last"` // journal position
	Blobs  int    `json:"blobs"`
	Bytes  int64  `json:"bytes"`
}

// Drained is how a drain ended.
type Drained struct {
	Lost int `json:"lost"` // sessions that the limit ended
}

// node adds the node's own commands to the socket's routes.
func (a *API) node(mux *http.ServeMux) {
	if a.o.Node == nil {
		return
	}
	answer := func(path string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r)
			if err != nil {
				refuse(w, a.fail(err))
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	answer("/v1/node/check", func(r *http.Request) (any, error) { return a.o.Node.Check(r.Context()) })
	answer("/v1/node/backup", func(r *http.Request) (any, error) {
		return a.o.Node.Backup(r.Context(), r.URL.Query().Get("dir"), callerOf(r.Context()).Actor)
	})
	answer("/v1/node/image", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		most, err := strconv.ParseInt(q.Get("max_mib"), 10, 64)
		if err != nil {
			return nil, problem.New(problem.Usage, "max_mib is not a number", "")
		}
		return a.o.Node.PullImage(r.Context(), ImageWish{q.Get("image"), q.Get("connection"), q["also"], most}, callerOf(r.Context()).Actor)
	})
	answer("/v1/node/drain", func(r *http.Request) (any, error) {
		limit, err := time.ParseDuration(r.URL.Query().Get("limit"))
		if err != nil {
			return nil, problem.New(problem.Usage, "limit is not a duration", "")
		}
		return a.o.Node.Drain(r.Context(), limit, callerOf(r.Context()).Actor)
	})
}
