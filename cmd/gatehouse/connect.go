package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/ingest/github"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

func (c *cli) connectCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "connect", Short: "Make a webhook secret and print what to paste where", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.connectGitHub(), c.connectSentry(), c.connectLinear())
	return cmd
}

// endpointFlag declares --endpoint.
func endpointFlag(cmd *cobra.Command, name *string, standard string) {
	cmd.Flags().StringVar(name, "endpoint", standard, "name of the endpoint, the last part of its URL")
}

// connecting checks that an endpoint can be added and returns the configuration
// and its folder.
func (c *cli) connecting(cmd *cobra.Command, endpoint string) (*config.Config, string, error) {
	path := c.file(cmd)
	cfg, err := config.Check(path)
	if err != nil {
		return nil, "", err
	}
	for _, e := range cfg.Endpoints {
		if e.Name == endpoint {
			return nil, "", problem.New(problem.Conflict, fmt.Sprintf("endpoint %q is configured already", endpoint), "name another with --endpoint")
		}
	}
	return cfg, filepath.Dir(path), nil
}

func (c *cli) connectGitHub() *cobra.Command {
	var endpoint string
	var app githubApp
	var made newApp
	cmd := &cobra.Command{
		Use: "github", Short: "Make a GitHub webhook secret or App; print the fields of the hook or App and the YAML",
		Long: "Make a GitHub webhook secret, write it to a 0600 file beside the configuration, and print the fields of the hook\n" +
			"and the YAML of the endpoint. With --app-id and --app-key the hook is a GitHub App's: the node can then ask GitHub for\n" +
			"deliveries that never came and for what an author may do. With --create-app GitHub makes the App from a manifest that\n" +
			"a page on loopback hands over, and its key and secret are fetched. An endpoint that is configured\n" +
			"without an App keeps its secret under --app-id. The configuration is not changed: it has one author.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if app.id != 0 && !made.create {
				if done, err := c.appOf(cmd, endpoint, app); done || err != nil {
					return err
				}
			}
			cfg, dir, err := c.connecting(cmd, endpoint)
			if err != nil {
				return err
			}
			if made.create {
				if err := app.free(cfg, dir); err != nil {
					return err
				}
				return c.createApp(cmd.Context(), cfg, dir, endpoint, app, made)
			}
			if err := app.check(cfg, dir); err != nil {
				return err
			}
			name, value := endpoint+".key", newSecret(github.Name)
			if err := writeSecretOf(filepath.Join(dir, name), value); err != nil {
				return err
			}
			fmt.Fprintf(c.out, "Wrote the secret to %s (0600). It is shown here once:\n  %s\n\n", name, value.Reveal())
			if app.id == 0 {
				fmt.Fprintf(c.out, `In the repository or organization: Settings, Webhooks, Add webhook
  Payload URL   %[1]s
  Content type  application/json
  Secret        the line above
  Events        the kinds your bundles match, for example Workflow runs

In gatehouse.yaml, under endpoints:
  - {name: %[2]s, source: github, secrets: ["${file:%[3]s}"]}

Then: gatehouse config check, and gatehouse endpoint test %[2]s once the node runs
`, publicURL(cfg, endpoint), endpoint, name)
				return nil
			}
			c.appPage(cfg, endpoint, "the line above")
			fmt.Fprint(c.out, app.yaml(endpoint, "${file:"+name+"}"))
			return nil
		},
	}
	endpointFlag(cmd, &endpoint, "main")
	f := cmd.Flags()
	f.Int64Var(&app.id, "app-id", 0, "id of the GitHub App whose hook delivers here")
	f.StringVar(&app.key, "app-key", "", "PEM file of the App's private key, from the configuration's folder or absolute")
	f.StringVar(&app.connection, "connection", "github-main", "name of the App's connection")
	f.StringVar(&app.api, "api", "", "API of an Enterprise Server: https://HOST/api/v3/")
	f.StringVar(&app.ca, "ca", "", "PEM file of the authority that signed the Enterprise Server's certificate")
	f.BoolVar(&made.create, "create-app", false, "have GitHub make the App from a manifest")
	f.StringVar(&made.name, "app-name", "", "name of the App to make")
	f.StringVar(&made.organization, "organization", "", "organization that will own the App; without it you do")
	f.StringSliceVar(&made.events, "events", []string{"workflow_run"}, "events of the App to make; each brings its read permission")
	f.StringSliceVar(&made.permissions, "permissions", nil, "further permissions, for example contents=write,pull_requests=write")
	f.BoolVar(&made.dev, "dev", false, "put the configuration's dev substitutions in force for --create-app")
	return cmd
}

// githubApp is what --app-id and its companions say.
type githubApp struct {
	id                       int64
	key, connection, api, ca string
}

// inside returns a path of the command line, from the configuration's folder.
func inside(dir, p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(dir, p)
}

// free refuses a connection that is there, and an API that is none.
func (a githubApp) free(cfg *config.Config, dir string) error {
	for _, n := range cfg.Connections {
		if n.Name == a.connection {
			return problem.New(problem.Conflict, fmt.Sprintf("connection %q is configured already", a.connection), "name another with --connection")
		}
	}
	if _, _, err := apiOf(config.Connection{Name: a.connection, API: a.api}); err != nil {
		return err
	}
	if a.ca != "" {
		if _, err := rootsOf(inside(dir, a.ca)); err != nil {
			return problem.Wrap(err, problem.Usage, "couldn't read --ca", "give a PEM file with the authority's certificate")
		}
	}
	return nil
}

// check refuses what the node would not start with.
func (a githubApp) check(cfg *config.Config, dir string) error {
	if (a.id == 0) != (a.key == "") || a.id == 0 && (a.api != "" || a.ca != "") {
		return usage("--app-id and --app-key go together, --api and --ca go with them", "both stand on the App's page")
	}
	if a.id == 0 {
		return nil
	}
	key := inside(dir, a.key)
	info, err := os.Stat(key)
	if err != nil {
		return problem.Wrap(err, problem.Usage, "couldn't read --app-key", "")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return problem.New(problem.ConfigInvalid, a.key+" can be read by others", "chmod 600 "+a.key)
	}
	pem, err := os.ReadFile(key)
	if err != nil {
		return problem.Wrap(err, problem.Usage, "couldn't read --app-key", "")
	}
	if _, err := github.NewApp(a.id, secret.New(pem)); err != nil {
		return err
	}
	return a.free(cfg, dir)
}

// appPage prints what the App's page on GitHub is to say.
func (c *cli) appPage(cfg *config.Config, endpoint, secret string) {
	fmt.Fprintf(c.out, `On the App's page, General
  Webhook URL     %s
  Webhook secret  %s
On the App's page, Permissions & events
  Repository      Metadata: read-only; what else your events and bundles need
  Events          the kinds your bundles match, for example Workflow run

`, publicURL(cfg, endpoint), secret)
}

// appOf is for an endpoint that has its secret already and no connection, such
// as the one that init writes: the App's hook delivers there. It reports whether
// there was one.
func (c *cli) appOf(cmd *cobra.Command, endpoint string, app githubApp) (bool, error) {
	path := c.file(cmd)
	cfg, err := config.Check(path)
	if err != nil {
		return false, err
	}
	for _, e := range cfg.Endpoints {
		if e.Name != endpoint || e.Source != github.Name || e.Connection != "" || len(e.Secrets) == 0 {
			continue
		}
		if err := app.check(cfg, filepath.Dir(path)); err != nil {
			return false, err
		}
		ref := e.Secrets[len(e.Secrets)-1].Ref()
		fmt.Fprintf(c.out, "The endpoint %s has its secret already: no other is made.\n\n", endpoint)
		c.appPage(cfg, endpoint, "what "+ref+" holds")
		fmt.Fprint(c.out, app.yaml(endpoint, ref))
		return true, nil
	}
	return false, nil
}

// yaml is what the configuration wants for an App's endpoint and connection.
func (a githubApp) yaml(endpoint, secret string) string {
	return fmt.Sprintf(`In gatehouse.yaml, under connections:
  - {name: %[3]s, kind: scm, provider: github, app: {id: %[4]d, key: "${file:%[5]s}"}%[6]s}
In gatehouse.yaml, under endpoints:
  - {name: %[1]s, source: github, secrets: [%[2]q], connection: %[3]s}

Then: gatehouse config check, and gatehouse endpoint test %[1]s once the node runs
`, endpoint, secret, a.connection, a.id, a.key, a.server())
}

// server is the part of the connection's YAML that names an Enterprise Server.
func (a githubApp) server() string {
	var b strings.Builder
	if a.api != "" {
		fmt.Fprintf(&b, ", api: %q", a.api)
	}
	if a.ca != "" {
		fmt.Fprintf(&b, ", ca: %q", a.ca)
	}
	return b.String()
}

// writeSecret writes a fresh secret to a new 0600 file.
func writeSecret(path string) error { return writeSecretOf(path, newSecret(github.Name)) }

// absent refuses to overwrite what is there.
func absent(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return exists(path)
	}
	return nil
}

func exists(path string) error {
	return problem.New(problem.Conflict, path+" exists", "remove it, or name another endpoint with --endpoint or connection with --connection")
}

// writeSecretOf is writeSecretFile with the words for a person.
func writeSecretOf(path string, value secret.Value) error {
	err := writeSecretFile(path, value)
	switch {
	case errors.Is(err, fs.ErrExist):
		return exists(path)
	case err != nil:
		return fmt.Errorf("couldn't write the secret: %w", err)
	}
	return nil
}
