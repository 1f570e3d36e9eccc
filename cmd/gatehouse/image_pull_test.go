package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"gatehouse/gatekeeper/sandbox/image"
	"gatehouse/internal/api"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// TestImagePull fetches an image with a credential that only the host of the
// registry's tokens gets, with the node stopped and with the node running. Each
// request is a receipt of the control chain.
func TestImagePull(t *testing.T) {
	const host, tokens = "registry.example.com", "tokens.example.com"
	key, short := unique("registry", "canary_of_a_registry"), unique("minted for a registry", "short-lived-canary-")
	img, err := random.Image(500, 2)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	store := ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(store)
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://")+"/tools/go:1", name.Insecure)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	defer world.Close()
	if _, err := world.HTTPS(host, netip.MustParseAddr("93.184.216.60"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch auth := r.Header.Get("Authorization"); {
		case strings.HasPrefix(auth, "Basic"):
			t.Error("IM-05: the registry got the credential of its tokens' host")
		case auth != "Bearer "+short:
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+tokens+`/token",service="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			store.ServeHTTP(w, r)
		}
	})); err != nil {
		t.Fatal(err)
	}
	if _, err := world.HTTPS(tokens, netip.MustParseAddr("93.184.216.61"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); !ok || user != "robot" || pass != key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"token":%q}`, short)
	})); err != nil {
		t.Fatal(err)
	}
	subs, err := json.Marshal(world.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	n := newLiveNode(t, fmt.Sprintf(`connections: [{name: images, kind: http, host: %s, scheme: basic, header: robot, credential: "${file:registry.key}"}]
dev: {upstreams: %s, dns: %q, ca: ca.pem}
`, tokens, subs, world.DNS.Addr()))
	n.args = []string{"--dev"}
	n.write("ca.pem", string(world.CA()))
	n.write("registry.key", key)
	want := host + "/tools/go@" + digest.String()

	n.gatehouse(exitUsage, "image", "pull", "--dev", host+"/tools/go:1")
	if out := n.gatehouse(exitFailed, "image", "pull", "--dev", want); !strings.Contains(out, "not declared: "+tokens) {
		t.Errorf("IM-02: without the connection: %s", out)
	}
	pulled := func() {
		t.Helper()
		var got api.PulledImage
		out := n.gatehouse(exitOK, "image", "pull", "--dev", "--connection", "images", "-o", "json", want)
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Image != want || got.Layers != 2 {
			t.Errorf("%v %s", err, out)
		}
		if strings.Contains(out, "canary") {
			t.Errorf("it prints the credential: %s", out)
		}
	}
	pulled() // by the command itself
	n.start()
	pulled() // by the node
	n.stop()
	if _, err := image.NewStore(n.path("state", imagesFolder), tempDir(t)).Rootfs(t.Context(), want); err != nil {
		t.Error(err)
	}
	asked, told := map[string]int{}, 0
	for _, r := range n.controlOf() {
		switch {
		case r.Type == receipts.TypeDecision && r.Act.Name == purposeImage:
			asked[r.Act.Host+" "+r.Act.Connection]++
		case r.Type == receipts.TypeOutcome && len(asked) > 0:
			told++
		}
	}
	if asked[host+" "] < 10 || asked[tokens+" images"] < 2 || told < 12 {
		t.Errorf("receipts: %v, %d outcomes", asked, told)
	}
}
