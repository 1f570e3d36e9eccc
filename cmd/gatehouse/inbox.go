package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/enforcers/operations"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/secret"
)

// inboxInside is where a session finds what operations bring in for it, and
// inboxVariable tells it so.
const (
	inboxInside   = "/inbox"
	inboxVariable = "GATEHOUSE_INBOX"
)

// inboxOf makes a session's inbox when its bundle lists an operation that fills
// one.
func inboxOf(s gatekeeper.DoorSpec) (*operations.Inbox, gatekeeper.Inside, error) {
	if !slices.Contains(s.Bundle.Operations, "scm.run.logs") && !slices.Contains(s.Bundle.Operations, "scm.artifact.get") {
		return nil, gatekeeper.Inside{}, nil
	}
	if p := s.Bundle.Session.Provider; p != "local" && p != "oci" {
		return nil, gatekeeper.Inside{}, nil // another machine shows none of this one's folders
	}
	dir := filepath.Join(s.Dir, "inbox")
	box, err := operations.NewInbox(dir, inboxInside)
	return box, gatekeeper.Inside{Env: map[string]string{inboxVariable: inboxInside}, Mounts: []sandbox.Mount{{Source: dir, Path: inboxInside}}}, err
}

// markKey returns the key that seals the marks under what sessions write. A node
// keeps it beside its state; one that keeps no keys has one for its own run.
func markKey(s state) (secret.Value, error) {
	if s.keys == "" {
		return secret.FromString(rand.Text()), nil
	}
	path := filepath.Join(s.dir, "mark.key")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b = []byte(rand.Text())
		err = replaceFile(path, b) // whole or not there, whenever the power goes
	}
	if err != nil || len(b) < 26 {
		return secret.Value{}, fmt.Errorf("couldn't read %s: %w", path, errors.Join(err, errors.New("want 26 characters; remove it to have it made anew")))
	}
	return secret.FromString(string(b)), nil
}

// firstLimit bounds what a session's first operations may take.
const firstLimit = 20 * time.Second

// start carries out what the bundle lists under on_start, right before the agent
// does. Each is judged and receipted like the agent's calls. A session whose first
// words could not be said goes on.
func (d *desks) start(ctx context.Context, s gatekeeper.DoorSpec, desk *operations.Desk) {
	ctx, cancel := context.WithTimeout(ctx, firstLimit)
	defer cancel()
	for _, name := range s.Bundle.Session.OnStart {
		kind, number, _ := strings.Cut(s.Subject.Entity, "-")
		n, err := strconv.Atoi(number)
		if name != "scm.comment" {
			d.log.WarnContext(ctx, "on_start: the operation needs words of its own and can't be called here", slog.String("session", s.Session), slog.String("operation", name))
			continue
		}
		if err != nil || kind != "pr" && kind != "issue" {
			continue
		}
		args, err := json.Marshal(map[string]any{"number": n, "body": fmt.Sprintf("Gatehouse session `%s` under bundle `%s` (%s) has started.", s.Session, s.Bundle.Name, s.Bundle.Mode)})
		if err == nil {
			_, _, err = desk.CallOwn(ctx, name, "on-start-"+name, args)
		}
		if err != nil {
			d.log.WarnContext(ctx, "on_start failed", slog.String("session", s.Session), slog.String("operation", name), slog.Any("err", err))
		}
	}
}
