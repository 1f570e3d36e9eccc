//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// tool returns the path of a program that these tests need and CI may not have.
func tool(t *testing.T, name, from string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: no %s here (Debian: %s); deploy/ is not checked with it", name, from)
	}
	return path
}

func deployed(t *testing.T, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMetricNames: rules and dashboard ask for metrics that a node has.
func TestMetricNames(t *testing.T) {
	documented, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("counting.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("`(gatehouse_[a-z_]+)`").FindAllSubmatch(documented, -1) {
		known[string(m[1])] = true
	}
	for _, m := range regexp.MustCompile(`\.Gauge\("([a-z_]+)"`).FindAllSubmatch(source, -1) {
		known["gatehouse_"+string(m[1])] = true
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range [][]string{{"prometheus", "rules.yaml"}, {"grafana", "gatehouse.json"}} {
		names := regexp.MustCompile(`gatehouse_[a-z_]+`).FindAllString(deployed(t, file...), -1)
		if len(names) < 8 {
			t.Fatalf("%v asks for %v only", file, names)
		}
		for _, name := range names {
			if !known[name] && !known[suffix.ReplaceAllString(name, "")] {
				t.Errorf("%v asks for %s, which no node has", file, name)
			}
		}
	}
}

func TestAlertRules(t *testing.T) {
	out, err := exec.Command(tool(t, "promtool", "prometheus"), "check", "rules", "../../deploy/prometheus/rules.yaml").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("SUCCESS")) {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
}

// TestAppArmorProfile checks the syntax only; loading it needs a kernel with
// AppArmor. Parsers before version 4 do not know userns and abi 4.0.
func TestAppArmorProfile(t *testing.T) {
	parser := tool(t, "apparmor_parser", "apparmor")
	profile := deployed(t, "apparmor", "gatehouse-bwrap")
	version, _ := exec.Command(parser, "--version").CombinedOutput()
	if !regexp.MustCompile(`version [4-9]`).Match(version) {
		t.Logf("checked without userns and abi: this is an older parser: %s", version)
		profile = regexp.MustCompile(`(?m)^(abi .*|\s*userns,)$`).ReplaceAllString(profile, "")
	}
	args := []string{"-Q", "-K"} // neither load nor cache
	if base := os.Getenv("GATEHOUSE_TEST_APPARMOR_D"); base != "" {
		args = append(args, "-b", base, "-I", base)
	}
	cmd := exec.Command(parser, args...)
	cmd.Stdin = strings.NewReader(profile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("apparmor_parser: %v\n%s", err, out)
	}
}

// TestUnit: the unit has none of the directives that end sandboxes, whatever a
// hardening checklist says, and explains each.
func TestUnit(t *testing.T) {
	unit := deployed(t, "systemd", "gatehouse.service")
	set := map[string]string{}
	for line := range strings.SplitSeq(unit, "\n") {
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set[name] = value
		}
	}
	for _, name := range notInUnit {
		if _, ok := set[name]; ok {
			t.Errorf("the unit sets %s", name)
		}
		if !regexp.MustCompile(`(?m)^#.*\b` + name + `=`).MatchString(unit) {
			t.Errorf("the unit does not say why it has no %s", name)
		}
	}
	for name, want := range map[string]string{"Delegate": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "RuntimeDirectory": "gatehouse", "Restart": "on-failure", "UMask": "0077"} {
		if set[name] != want {
			t.Errorf("%s=%s, want %s", name, set[name], want)
		}
	}
	analyze := tool(t, "systemd-analyze", "systemd")
	// verify wants the program to exist where it runs.
	file := filepath.Join(tempDir(t), "gatehouse.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/gatehouse", binary)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// asService is a shell that starts "$@" as the unit would: ProtectSystem=strict
// and ProtectHome by mounts, RuntimeDirectory, UMask, the capability bounding set, no_new_privs. more is a
// line for what the unit leaves out. $STATE stays writable; the test's own binary
// lies in /tmp, so that stays too.
func asService(t *testing.T, more string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the unit runs as root, and so does this")
	}
	for _, name := range []string{"setpriv", "unshare", "bwrap"} {
		tool(t, name, "util-linux, bubblewrap")
	}
	bounding := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(deployed(t, "systemd", "gatehouse.service"))
	if bounding == nil {
		t.Fatal("the unit has no CapabilityBoundingSet")
	}
	caps := []string{"-all"}
	for _, c := range strings.Fields(bounding[1]) {
		caps = append(caps, "+"+strings.ToLower(strings.TrimPrefix(c, "CAP_")))
	}
	return `set -e
mount --make-rprivate /
mkdir -p -m 0700 /run/gatehouse
mount --bind /run/gatehouse /run/gatehouse
mount -o remount,bind,ro /
for d in /usr /etc /boot /opt /srv; do if [ -d $d ]; then mount --bind $d $d; mount -o remount,bind,ro $d; fi; done
[ ! -d /home ] || mount -t tmpfs -o ro,mode=0755 tmpfs /home
mount --bind "$STATE" "$STATE"
mount -o remount,bind,rw "$STATE"
` + more + "\numask 0077\nexec setpriv --bounding-set " + strings.Join(caps, ",") + ` --no-new-privs "$@"`
}

// TestUnderServiceRestrictions stands for a systemd where none runs: the live
// probe, in a real sandbox, under the unit's restrictions; and two directives
// of which the unit says that no sandbox starts with them.
func TestUnderServiceRestrictions(t *testing.T) {
	dir := nodeDir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if _, err := initNode(dir, "test.gatehouse.example/node-1"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		more string
		says string
	}{
		"as_the_unit_says":      {"", `"check":"probe","level":"ok"`},
		"ProtectKernelTunables": {"mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys", "bwrap: Can't "},
		"ProcSubset":            {"mount -t proc -o subset=pid proc /proc", "bwrap: Can't "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("unshare", "--mount", "/bin/sh", "-c", asService(t, c.more), "sh", binary, "-c", filepath.Join(dir, "gatehouse.yaml"), "doctor", "-o", "ndjson")
			cmd.Env = append(os.Environ(), "STATE="+dir, "TMPDIR="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if !bytes.Contains(out, []byte(c.says)) || bytes.Contains(out, []byte(`"check":"probe SB`)) {
				t.Errorf("doctor does not say %q, or a case fails:\n%s", c.says, out)
			}
		})
	}
}

// TestServeClosesItsUmask, whichever one it is started with, and a session reads
// what was written for it.
func TestServeClosesItsUmask(t *testing.T) {
	n := newLiveNode(t, "", sleeper("0"))
	n.pre = []string{"/bin/sh", "-c", `umask 0; exec "$@"`, "sh"}
	n.start()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(status, []byte("\nUmask:\t0077\n")) {
		t.Errorf("the node's umask is open:\n%s", status)
	}
	ids := n.deliver(failure(1))
	n.settled(ids...)
	if s := n.sessions()[0]; s.State != "ended" || s.Reason != "no_effect" {
		t.Errorf("the session: %+v", s)
	}
	n.stop()
}

// TestSessionUnderServiceRestrictions is a whole hard session under them: started,
// at work, killed, and nothing left.
func TestSessionUnderServiceRestrictions(t *testing.T) {
	world, site := listedWorld(t)
	config, bundle := knocker(world)
	n := newLiveNode(t, config, bundle)
	n.args = []string{"--dev"}
	n.pre = []string{"env", "STATE=" + n.dir, "TMPDIR=" + n.dir, "unshare", "--mount", "/bin/sh", "-c", asService(t, ""), "sh"}
	n.start()
	ids := n.deliver(failure(1))
	n.until("asking outside", func() bool { return site.Requests() > 3 })
	n.gatehouse(exitOK, "session", "kill", n.sessions()[0].ID)
	n.settled(ids...)
	n.stop()
	c := &crash{liveNode: n}
	c.noProcess("after the end")
	c.nothingLeft()
}

// certificate writes a key and a self-signed certificate for the names.
func certificate(t *testing.T, dir string, names ...string) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk}), 0o600)); err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return cert, key, roots
}

// TestNginx runs deploy/nginx/gatehouse.conf: a signed delivery of nearly 25 MiB
// goes through it to a real node unchanged, a larger one does not, nothing but
// /hooks/ is there, and an event stream comes through at once.
func TestNginx(t *testing.T) {
	nginx := tool(t, "nginx", "nginx")
	n := newLiveNode(t, "", sleeper("0"))
	n.start()
	dir := nodeDir(t)
	cert, key, roots := certificate(t, dir, "hooks.example.com", "gatehouse.internal.example")
	finish := make(chan struct{})
	stream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(stream.Close)
	hooks, err1 := freeAddr()
	operator, err2 := freeAddr()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	site := strings.NewReplacer(
		"listen 443 ssl", "listen "+hooks+" ssl", "listen 10.0.0.1:443 ssl", "listen "+operator+" ssl",
		"/etc/ssl/gatehouse/hooks.pem", cert, "/etc/ssl/gatehouse/hooks.key", key,
		"/etc/ssl/gatehouse/operator.pem", cert, "/etc/ssl/gatehouse/operator.key", key,
		"127.0.0.1:8080", n.hooks, "127.0.0.1:8081", strings.TrimPrefix(stream.URL, "http://"),
	).Replace(deployed(t, "nginx", "gatehouse.conf"))
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\n%[2]s}\n", dir, site)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(nginx, "-t", "-c", conf, "-e", filepath.Join(dir, "error.log")).CombinedOutput(); err != nil {
		t.Fatalf("nginx -t: %v\n%s", err, out)
	}
	cmd := exec.Command(nginx, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	n.until("listening", func() bool {
		c, err := net.Dial("tcp", hooks)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	client := func(addr, name string) *http.Client {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, Timeout: patience}
	}
	public := client(hooks, "hooks.example.com")
	post := func(size int) int {
		t.Helper()
		p := padded(quiet(size), size)
		d := delivery{Source: "github", Kind: "workflow_run", ID: p.id, Secret: n.key, Body: p.body}
		h, err := d.sign(p.id, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+hooks+"/hooks/main", bytes.NewReader(p.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		res, err := public.Do(req)
		if err != nil {
			return 0 // nginx may cut a body that is too large
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	for name, c := range map[string]struct {
		size int
		want []int
	}{
		"small":          {10, []int{200}},
		"nearly_25_MiB":  {24 << 20, []int{200}},
		"more_than_that": {26 << 20, []int{413, 0}},
	} {
		if got := post(c.size); !slices.Contains(c.want, got) {
			t.Errorf("%s: answered %d, want %v", name, got, c.want)
		}
	}
	for path, want := range map[string]int{"/": 404, "/v1/status": 404, "/ui": 404, "/metrics": 404} {
		res, err := public.Get("https://" + hooks + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
	res, err := client(operator, "gatehouse.internal.example").Get("https://" + operator + "/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	// The stream has not ended: a buffering proxy would show nothing yet.
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "data: first\n" {
		t.Errorf("the first event is %q, %v", line, err)
	}
	close(finish)
	n.stop()
}

// TestCompose: the node's container has what the unit gives and is not privileged,
// no image goes by a name that can move, and the file says what sessions lack in
// it. Nothing was started.
func TestCompose(t *testing.T) {
	text := deployed(t, "compose", "compose.yaml")
	var file struct {
		Services map[string]struct {
			Image       string
			User        string
			Command     []string
			Privileged  bool
			NetworkMode string `yaml:"network_mode"`
			Pid, Ipc    string // of the host, when set
			Devices     []string
			CapDrop     []string `yaml:"cap_drop"`
			CapAdd      []string `yaml:"cap_add"`
			SecurityOpt []string `yaml:"security_opt"`
			Volumes     []string
			Healthcheck struct{ Test []string }
			MemLimit    string `yaml:"mem_limit"`
			StopGrace   string `yaml:"stop_grace_period"`
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	unit := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(deployed(t, "systemd", "gatehouse.service"))[1]
	for name, s := range file.Services {
		if !regexp.MustCompile(`^\$\{[A-Z_]+_IMAGE:\?|^[^:@]+@sha256:[0-9a-f]{64}$`).MatchString(s.Image) {
			t.Errorf("%s: the image %s goes by a name that can move", name, s.Image)
		}
		if s.Privileged || len(s.Devices) > 0 || s.Pid != "" || s.Ipc != "" {
			t.Errorf("%s is privileged, or has devices or namespaces of the host", name)
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s keeps capabilities %v, %v", name, s.CapDrop, s.SecurityOpt)
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			_, named := file.Volumes[from]
			if !named && !strings.HasSuffix(v, ":ro") || strings.Contains(v, ".sock") || from == "/" {
				t.Errorf("%s: the volume %s is of the host and can be written", name, v)
			}
		}
	}
	node := file.Services["gatehouse"]
	if want := strings.Fields(strings.ReplaceAll(unit, "CAP_", "")); !slices.Equal(node.CapAdd, want) {
		t.Errorf("the container has %v, the unit %v", node.CapAdd, want)
	}
	if len(file.Services["nats"].CapAdd) > 0 {
		t.Error("NATS has capabilities")
	}
	if node.User != "0:0" || node.MemLimit == "" || node.StopGrace != "45s" || !slices.Contains(node.Healthcheck.Test, "status") || !slices.Contains(node.Command, "serve") {
		t.Errorf("the node's container: %+v", node)
	}
	if !strings.Contains(text, "unlimited: accepted") {
		t.Error("the file does not say that sessions have no limits of their own")
	}
	if out, err := exec.Command("docker", "compose", "version").CombinedOutput(); err != nil {
		t.Logf("not checked by docker compose: %v %s", err, bytes.TrimSpace(out))
		return
	}
	cmd := exec.Command("docker", "compose", "-f", "../../deploy/compose/compose.yaml", "config", "--quiet")
	cmd.Env = append(os.Environ(), "NATS_IMAGE=n", "GATEHOUSE_IMAGE=g", "GATEHOUSE_ADMIN_NKEY=a", "GATEHOUSE_NODE_NKEY=b", "GATEHOUSE_MEMORY=1g")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("docker compose config: %v\n%s", err, out)
	}
}

func TestCaddy(t *testing.T) {
	caddy := tool(t, "caddy", "caddy")
	out, err := exec.Command(caddy, "adapt", "--validate", "--adapter", "caddyfile", "--config", "../../deploy/caddy/Caddyfile").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("flush_interval")) {
		t.Fatalf("caddy: %v\n%s", err, out)
	}
}
