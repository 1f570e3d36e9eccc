package github

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

var appKey = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, minRSA)
	if err != nil {
		panic(err)
	}
	return k
})

func pkcs1(k *rsa.PrivateKey) secret.Value {
	return secret.New(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
}

func pkcs8(t *testing.T, k any) secret.Value {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return secret.New(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func TestNewApp(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id  int64
		key secret.Value
		ok  bool
	}{
		"PKCS#1":      {1, pkcs1(appKey()), true},
		"PKCS#8":      {1, pkcs8(t, appKey()), true},
		"no id":       {0, pkcs1(appKey()), false},
		"no PEM":      {1, secret.FromString("canary-text"), false},
		"no key":      {1, secret.FromString("-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"), false},
		"no RSA":      {1, pkcs8(t, curve), false},
		"too short":   {1, pkcs1(small), false},
		"empty value": {1, secret.Value{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := NewApp(c.id, c.key)
			if (err == nil) != c.ok || (a != nil) != c.ok {
				t.Fatalf("%v", err)
			}
			if err != nil && (problem.CodeOf(err) != problem.ConfigInvalid || strings.Contains(err.Error(), "canary")) {
				t.Errorf("%v", err)
			}
		})
	}
}

// verifyJWT checks a JWT as GitHub does.
func verifyJWT(token string, now time.Time) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("not three parts")
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&appKey().PublicKey, crypto.SHA256, sum[:], sig); err != nil {
		return err
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct {
		Iat, Exp int64
		Iss      string
	}
	if err := json.Unmarshal(body, &claims); err != nil {
		return err
	}
	if claims.Iss != "4711" || claims.Iat > now.Unix() || claims.Exp <= now.Unix() || claims.Exp-claims.Iat > 600 {
		return fmt.Errorf("claims %+v", claims)
	}
	return nil
}

// TestRepositoryToken: the node's own token is for one repository and the least
// permission, is written down before its first use, and is minted again when it
// ends. Whatever GitHub answers beyond that is not used.
func TestRepositoryToken(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	good := map[string]any{"token": "ghs_canary", "expires_at": now.Add(time.Hour), "permissions": map[string]string{"metadata": "read"}, "repositories": []map[string]any{{"id": 501}}}
	with := func(k string, v any) map[string]any {
		out := map[string]any{}
		for name, value := range good {
			out[name] = value
		}
		out[k] = v
		return out
	}
	for name, c := range map[string]struct {
		answer  map[string]any
		receipt error
		ok      bool
	}{
		"as asked for":                    {good, nil, true},
		"more permissions":                {with("permissions", map[string]string{"metadata": "read", "contents": "write"}), nil, false},
		"higher permission":               {with("permissions", map[string]string{"metadata": "write"}), nil, false},
		"unheard-of permission":           {with("permissions", map[string]string{"metadata": "read", "models": "read"}), nil, false},
		"permission of a form of its own": {with("permissions", map[string]any{"metadata": "read", "contents": map[string]string{"all": "write"}}), nil, false},
		"selected":                        {with("repository_selection", "selected"), nil, true},
		"installed everywhere":            {with("repository_selection", "all"), nil, false},
		"no permissions named":            {with("permissions", nil), nil, false},
		"every repository":                {with("repositories", nil), nil, false},
		"another repository":              {with("repositories", []map[string]any{{"id": 502}}), nil, false},
		"a sibling too":                   {with("repositories", []map[string]any{{"id": 501}, {"id": 502}}), nil, false},
		"no token":                        {with("token", ""), nil, false},
		"ended already":                   {with("expires_at", now), nil, false},
		"no receipt":                      {good, errors.New("disk full"), false},
	} {
		t.Run(name, func(t *testing.T) {
			now, answer := now, maps.Clone(c.answer)
			var asked, used, givenUp int
			var body []byte
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				switch r.Method + " " + r.URL.Path {
				case "GET /repos/acme/shop/installation":
					if err := verifyJWT(bearer, now); err != nil {
						t.Error(err)
					}
					fmt.Fprint(w, `{"id":88}`)
				case "POST /app/installations/88/access_tokens":
					asked++
					if err := verifyJWT(bearer, now); err != nil {
						t.Error(err)
					}
					body, _ = io.ReadAll(r.Body)
					w.WriteHeader(http.StatusCreated)
					_ = json.NewEncoder(w).Encode(answer)
				case "GET /repos/acme/shop":
					used++
					if bearer != "ghs_canary" {
						t.Errorf("called with %q", bearer)
					}
					fmt.Fprint(w, `{}`)
				case "DELETE /installation/token":
					if givenUp++; bearer != "ghs_canary" {
						t.Errorf("gave up %q", bearer)
					}
					w.WriteHeader(http.StatusNoContent)
				default:
					t.Errorf("%s %s", r.Method, r.URL.Path)
				}
			}))
			defer srv.Close()
			base, err := url.Parse(srv.URL + "/")
			if err != nil {
				t.Fatal(err)
			}
			app, err := NewApp(4711, pkcs1(appKey()))
			if err != nil {
				t.Fatal(err)
			}
			var scopes []map[string]string
			api := &API{URL: base, Base: http.DefaultTransport, App: app, Now: func() time.Time { return now },
				Issued: func(_ context.Context, scope map[string]string, _ time.Time) error {
					if used > 0 && len(scopes) == 0 {
						t.Error("used before it was written down")
					}
					scopes = append(scopes, scope)
					return c.receipt
				}}
			client, err := api.Repository(t.Context(), "501", "acme", "shop", ReadMetadata)
			if (err == nil) != c.ok {
				t.Fatalf("%v", err)
			}
			if !bytes.Contains(body, []byte(`"repository_ids":[501]`)) || !bytes.Contains(body, []byte(`"permissions":{"metadata":"read"}`)) {
				t.Errorf("asked for %s", body)
			}
			if err != nil {
				if want := answer["token"] != "" && name != "ended already"; (givenUp == 1) != want {
					t.Errorf("the token was given up %d times", givenUp)
				}
				if strings.Contains(err.Error(), "canary") {
					t.Errorf("the error holds the token: %v", err)
				}
				return
			}
			if _, _, err := client.Repositories.Get(t.Context(), "acme", "shop"); err != nil || used != 1 {
				t.Errorf("used %d, %v", used, err)
			}
			if diff := cmp.Diff([]map[string]string{{"repository.id": "501", "permission.metadata": "read"}}, scopes); diff != "" {
				t.Errorf("receipts (-want +got):\n%s", diff)
			}
			if _, err := api.Repository(t.Context(), "501", "acme", "shop", ReadMetadata); err != nil || asked != 1 {
				t.Errorf("minted %d times, %v", asked, err)
			}
			now = now.Add(time.Hour)
			answer["expires_at"] = now.Add(time.Hour)
			if _, err := api.Repository(t.Context(), "501", "acme", "shop", ReadMetadata); err != nil || asked != 2 {
				t.Errorf("minted %d times after an hour, %v", asked, err)
			}
			before, revoked := givenUp, 0
			api.Revoked = func(_ context.Context, scope map[string]string, expires time.Time, failed error) error {
				revoked++
				if scope["repository.id"] != "501" || !expires.After(now) || failed != nil {
					t.Errorf("revoked %v until %s, %v", scope, expires, failed)
				}
				return nil
			}
			for range 2 { // the second finds nothing
				if err := api.Close(t.Context()); err != nil || givenUp != before+1 || revoked != 1 {
					t.Errorf("closing gave up %d tokens and wrote %d down, %v", givenUp-before, revoked, err)
				}
			}
		})
	}
	t.Run("configured token", func(t *testing.T) {
		var got string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			fmt.Fprint(w, `{}`)
		}))
		defer srv.Close()
		base, err := url.Parse(srv.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		api := &API{URL: base, Base: http.DefaultTransport, Token: secret.FromString("ghp_canary")}
		client, err := api.Repository(t.Context(), "501", "acme", "shop", ReadMetadata)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.Repositories.Get(t.Context(), "acme", "shop"); err != nil || got != "Bearer ghp_canary" {
			t.Errorf("called with %q, %v", got, err)
		}
	})
}
