package model

import (
	"encoding/json"
	"net/http"
	"strings"

	"gatehouse/enforcers/door"
)

// Google's client libraries ask a metadata server for their credentials. Inside
// a session the door stands for it, under its own name; the real one stays
// closed. It hands out the session's placeholder and what the connection's
// configuration says anyway, and nothing else.

const metadataRoot = "/computeMetadata/v1"

// vertex returns the session's first Vertex connection, nil if it has none.
func (m *Mediator) vertex() *conn {
	for _, c := range m.conns {
		if c.onVertex() {
			return c
		}
	}
	return nil
}

func (c *conn) onVertex() bool { return strings.HasPrefix(c.Provider, "vertex-") }

func (m *Mediator) isMetadata(r *door.Request) bool {
	return r.To.Host() == door.Reserved && m.vertex() != nil && (r.Path == metadataRoot || strings.HasPrefix(r.Path, metadataRoot+"/"))
}

// metadata answers as the platform's server would, as far as it goes.
func (m *Mediator) metadata(w http.ResponseWriter, r *door.Request) {
	h := w.Header()
	h.Set("Metadata-Flavor", "Google")
	h.Set("Cache-Control", "no-store")
	// The header keeps requests out that somebody else made a client send.
	if r.Header.Get("Metadata-Flavor") != "Google" || len(r.Header["X-Forwarded-For"]) > 0 || r.Method != http.MethodGet {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	c := m.vertex()
	account := metadataRoot + "/instance/service-accounts/"
	switch path := strings.TrimSuffix(r.Path, "/"); path {
	case metadataRoot, metadataRoot + "/instance":
		_, _ = w.Write([]byte("ok\n"))
	case metadataRoot + "/project/project-id":
		_, _ = w.Write([]byte(c.Project))
	case metadataRoot + "/universe/universe-domain", metadataRoot + "/universe/universe_domain":
		_, _ = w.Write([]byte("googleapis.com"))
	case account + "default", account + "default/email":
		if r.URL.Query().Get("recursive") == "true" {
			h.Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"aliases":["default"],"email":"default","scopes":["https://www.googleapis.com/auth/cloud-platform"]}`))
			return
		}
		_, _ = w.Write([]byte("default"))
	case account + "default/token":
		b, err := json.Marshal(map[string]any{"access_token": c.placeholder, "expires_in": 3600, "token_type": "Bearer"})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(b)
	default:
		w.WriteHeader(http.StatusNotFound) // identity tokens, keys and attributes among them
	}
}
