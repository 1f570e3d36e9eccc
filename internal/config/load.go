package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"

	"gatehouse/internal/problem"
	"gatehouse/internal/strictyaml"
)

// minRetain is the shortest archive that still serves as the source for
// rebuild and repair (DESIGN.md section 4).
const minRetain = 7 * 24 * time.Hour

// Load reads path, fills defaults, resolves every secret reference and
// validates. Every error is a *problem.Error with code config_invalid and
// names the file and the key. ${secret:NAME} is an error: LoadWith reads it.
func Load(path string) (*Config, error) { return LoadWith(path, nil) }

// LoadWith is Load with the store that ${secret:NAME} reads.
func LoadWith(path string, store Lookup) (*Config, error) {
	c, err := Check(path)
	if err != nil {
		return nil, err
	}
	if err := c.resolve(store); err != nil {
		return nil, err
	}
	return c, nil
}

// Check is Load without resolving secrets, for machines that do not hold them.
func Check(path string) (*Config, error) {
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(problem.ConfigInvalid, path+": no such file", "run `gatehouse init` to write a commented one, or name another with --config")
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't read "+path, "")
	}
	c := Default()
	if err := strictyaml.Decode(filepath.Base(path), src, &c); err != nil {
		return nil, err
	}
	// Absolute, because sandboxes and sockets are named by paths that other processes resolve.
	if c.path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// Path returns p relative to the configuration file's folder.
func (c *Config) Path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(filepath.Dir(c.path), p)
}

// StateDir returns the state folder as a path that the process can open.
func (c *Config) StateDir() string { return c.Path(c.State) }

// SecretsFile returns the file of the encrypted secret store.
func (c *Config) SecretsFile() string {
	if c.Secrets.File == "" {
		return filepath.Join(c.StateDir(), "secrets", "secrets.age")
	}
	return c.Path(c.Secrets.File)
}

// CheckpointDirs returns the folders that keep checkpoints, absolute.
func (c *Config) CheckpointDirs() []string {
	var dirs []string
	for _, d := range c.Checkpoints {
		if !strings.Contains(d, "://") {
			dirs = append(dirs, c.Path(d))
		}
	}
	return dirs
}

// CheckpointURLs returns where checkpoints are sent.
func (c *Config) CheckpointURLs() ([]*url.URL, error) {
	var urls []*url.URL
	for i, d := range c.Checkpoints {
		if !strings.Contains(d, "://") {
			continue
		}
		u, err := url.Parse(d)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
			return nil, c.bad(fmt.Sprintf("checkpoints[%d] is neither a folder nor an https URL without a user", i), "")
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// Private returns the files and folders that hold the node's own secrets: the
// state folder, the TLS key, and every file that a reference names.
func (c *Config) Private() []string {
	out := []string{c.StateDir(), c.SecretsFile()}
	add := func(s Secret) {
		if m := reference.FindStringSubmatch(s.ref); m != nil && m[1] == "file" {
			out = append(out, c.Path(m[2]))
		}
	}
	add(c.Secrets.Identity)
	for _, e := range c.Endpoints {
		for _, s := range e.Secrets {
			add(s)
		}
	}
	for _, n := range c.Connections {
		add(n.Credential)
		if n.App != nil {
			add(n.App.Key)
		}
	}
	if c.OIDC != nil {
		add(c.OIDC.Secret)
	}
	for _, n := range c.Notify {
		add(n.Password)
	}
	if c.Providers.Remote != nil {
		add(c.Providers.Remote.Token)
	}
	if c.Providers.OpenInspect != nil {
		add(c.Providers.OpenInspect.Token)
	}
	if c.TLS != nil {
		out = append(out, c.Path(c.TLS.Key))
	}
	return out
}

// ResolveIdentity resolves the reference of the secret store's identity alone,
// for whoever opens the store of a configuration that was only checked. The
// identity cannot be in the store itself.
func (c *Config) ResolveIdentity() error {
	return c.Secrets.Identity.resolve("secrets.identity", c, nil)
}

func (c *Config) resolve(store Lookup) error {
	if err := c.ResolveIdentity(); err != nil {
		return err
	}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		for k := range e.Secrets {
			if err := e.Secrets[k].resolve(fmt.Sprintf("endpoints[%d].secrets[%d]", i, k), c, store); err != nil {
				return err
			}
		}
	}
	if r := c.Providers.Remote; r != nil {
		if err := r.Token.resolve("providers.remote.token", c, store); err != nil {
			return err
		}
	}
	if o := c.Providers.OpenInspect; o != nil {
		if err := o.Token.resolve("providers.openinspect.token", c, store); err != nil {
			return err
		}
	}
	if c.OIDC != nil {
		if err := c.OIDC.Secret.resolve("oidc.secret", c, store); err != nil {
			return err
		}
	}
	for i := range c.Notify {
		if err := c.Notify[i].Password.resolve(fmt.Sprintf("notify[%d].password", i), c, store); err != nil {
			return err
		}
	}
	for i := range c.Connections {
		n := &c.Connections[i]
		if err := n.Credential.resolve(fmt.Sprintf("connections[%d].credential", i), c, store); err != nil {
			return err
		}
		if n.App != nil {
			if err := n.App.Key.resolve(fmt.Sprintf("connections[%d].app.key", i), c, store); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	tokenForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	nodeForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
)

func (c *Config) validate() error {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		return name
	})
	form := func(re *regexp.Regexp) validator.Func {
		return func(f validator.FieldLevel) bool { return re.MatchString(f.Field().String()) }
	}
	if err := errors.Join(v.RegisterValidation("token", form(tokenForm)), v.RegisterValidation("nodename", form(nodeForm)),
		v.RegisterValidation("hostport", func(f validator.FieldLevel) bool { return hostport(f.Field().String()) })); err != nil {
		return err
	}
	if err := v.Struct(c); err != nil {
		var fields validator.ValidationErrors
		if errors.As(err, &fields) {
			return c.bad(fieldProblem(fields[0]), fieldHint(fields[0]))
		}
		return c.bad(err.Error(), "")
	}
	for i, e := range c.Endpoints {
		if err := c.validateEndpoint(i, e); err != nil {
			return err
		}
	}
	if _, err := c.CheckpointURLs(); err != nil {
		return err
	}
	if err := c.validateProviders(); err != nil {
		return err
	}
	if time.Duration(c.Retain) < minRetain {
		return c.bad("retain is shorter than 7d", "the archive is the source for rebuild and repair")
	}
	// The operator listener carries sessions and commands: without TLS it stays on this machine.
	if c.TLS == nil && !loopback(c.Listen.Operator) {
		return c.bad("listen.operator is not a loopback address and tls is not set", "set tls, or bind it to 127.0.0.1 and use a tunnel")
	}
	if !loopback(c.Listen.Private) {
		return c.bad("listen.private is not a loopback address", "scrape it through an agent on this machine")
	}
	return nil
}

func (c *Config) validateEndpoint(i int, e Endpoint) error {
	where := fmt.Sprintf("endpoints[%d] (%s)", i, e.Name)
	switch {
	case e.Source == "cron" && e.Schedule == "":
		return c.bad(where+": source cron needs a schedule", `for example schedule: "0 3 * * *"`)
	case e.Source == "cron" && len(e.Secrets) > 0:
		return c.bad(where+": source cron takes no secrets", "remove them")
	case e.Source != "cron" && e.Schedule != "":
		return c.bad(where+": only source cron takes a schedule", "")
	case e.Source != "cron" && len(e.Secrets) == 0:
		return c.bad(where+": no secrets", "a webhook endpoint without a secret would accept anyone; use ${env:NAME} or ${file:PATH}")
	}
	switch {
	case e.Source == "webhook" && (e.HMAC == nil) == (e.Token == nil):
		return c.bad(where+": source webhook needs hmac or token", "say how the sender proves itself, for example hmac: {header: X-Signature}")
	case e.Source != "webhook" && (e.HMAC != nil || e.Token != nil):
		return c.bad(where+": only source webhook takes hmac and token", "")
	case e.Source != "webhook" && e.Source != "standard-webhooks" && (e.ID != nil || e.Kind != nil || e.Declare != nil || e.Entity != ""):
		return c.bad(where+": only source webhook and standard-webhooks take id, kind, declare and entity", "this source has its own tables")
	case e.Source != "github" && e.Source != "linear" && e.Trust != nil:
		return c.bad(where+": only source github and linear take trust", "")
	}
	if err := c.validateHook(where, e); err != nil {
		return err
	}
	for k, s := range e.Secrets {
		if s.ref == "" {
			return c.bad(fmt.Sprintf("%s: secrets[%d] is empty", where, k), "use ${env:NAME} or ${file:PATH}")
		}
	}
	return nil
}

// validateHook checks what the node needs to ask GitHub about an endpoint.
func (c *Config) validateHook(where string, e Endpoint) error {
	switch {
	case e.Connection == "" && e.Hook == nil:
		return nil
	case e.Source != "github":
		return c.bad(where+": only source github takes connection and hook", "")
	case e.Connection == "":
		return c.bad(where+": hook needs a connection", "name the scm connection whose credential may read the hook")
	}
	at := slices.IndexFunc(c.Connections, func(n Connection) bool { return n.Name == e.Connection })
	if at < 0 || c.Connections[at].Kind != "scm" || c.Connections[at].Provider != "github" {
		return c.bad(fmt.Sprintf("%s: connection %q is not an scm connection of provider github", where, e.Connection), "write it under connections")
	}
	n := c.Connections[at]
	switch h := e.Hook; {
	case (n.App == nil) == (n.Credential.ref == ""):
		return c.bad(fmt.Sprintf("connections[%d] (%s): provider github takes app or credential, and only one", at, n.Name), "")
	case h == nil && n.App == nil:
		return c.bad(where+": a connection without an App needs to know the hook", "write hook: {repository: ID, id: HOOK}")
	case h == nil:
		return nil
	case (h.Repository == "") == (h.Organization == ""):
		return c.bad(where+": hook is of a repository or of an organization", "")
	case h.Organization != "" && n.App != nil:
		return c.bad(where+": an organization's hook is read under a token, not under an App", "use a connection with credential")
	case h.Repository != "" && !slices.ContainsFunc(c.Repositories, func(r Repository) bool { return r.ID == h.Repository }):
		return c.bad(where+": the hook's repository is not in repositories", "list its id and name there")
	}
	return nil
}

// validateProviders checks what every provider on another machine needs: a
// place that can be verified, and a credential.
func (c *Config) validateProviders() error {
	place := func(at, raw string, token Secret) error {
		u, err := url.Parse(raw)
		switch {
		case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "":
			return c.bad(at+".url is not an https URL without a user or a query", "")
		case token.IsZero():
			return c.bad(at+".token is empty", "use ${env:NAME}, ${file:PATH} or ${secret:NAME}")
		}
		return nil
	}
	if r := c.Providers.Remote; r != nil {
		if err := place("providers.remote", r.URL, r.Token); err != nil {
			return err
		}
	}
	if o := c.Providers.OpenInspect; o != nil {
		return place("providers.openinspect", o.URL, o.Token)
	}
	return nil
}

func (c *Config) bad(msg, hint string) error {
	return problem.New(problem.ConfigInvalid, filepath.Base(c.path)+": "+msg, hint)
}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// hostport accepts host:port; port 0 asks the system for a free one.
func hostport(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// splitLoopback splits host:port when host is a loopback address or name.
func splitLoopback(hostport string) (host, port string, ok bool) {
	if !loopback(hostport) {
		return "", "", false
	}
	host, port, err := net.SplitHostPort(hostport)
	return host, port, err == nil
}

// fieldProblem words a validator finding with the key's path as in the file.
func fieldProblem(f validator.FieldError) string {
	_, path, _ := strings.Cut(f.Namespace(), ".")
	switch f.Tag() {
	case "required":
		return fmt.Sprintf("%s is missing", path)
	case "unique":
		return fmt.Sprintf("%s: two entries have the same %s", path, strings.ToLower(f.Param()))
	case "token", "nodename":
		return fmt.Sprintf("%s: only a-z, 0-9, - and _ are allowed, starting with a letter or digit", path)
	case "hostport":
		return fmt.Sprintf("%s: %q is not host:port", path, f.Value())
	case "oneof":
		return fmt.Sprintf("%s: %q is not one of %s", path, f.Value(), f.Param())
	}
	return fmt.Sprintf("%s does not satisfy %s", path, strings.TrimSuffix(f.Tag()+" "+f.Param(), " "))
}

func fieldHint(f validator.FieldError) string {
	if f.Tag() != "oneof" {
		return ""
	}
	if near := strictyaml.Nearest(fmt.Sprint(f.Value()), strings.Fields(f.Param())); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
