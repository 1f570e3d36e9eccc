package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

func (c *cli) modelCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "model", Short: "Try model connections", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.modelTest())
	return cmd
}

func (c *cli) modelTest() *cobra.Command {
	var dev bool
	cmd := &cobra.Command{
		Use: "test CONNECTION", Short: "Ask a provider whether it takes a connection's credential; costs nothing", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(c.file(cmd))
			if err != nil {
				return err
			}
			i := slices.IndexFunc(cfg.Connections, func(c config.Connection) bool { return c.Name == args[0] && c.Kind == "model" })
			if i < 0 {
				return problem.New(problem.NotFound, "there is no connection "+args[0]+" of kind model", "look under connections: in the configuration")
			}
			return c.tryModel(cmd.Context(), cfg, cfg.Connections[i], dev)
		},
	}
	cmd.Flags().BoolVar(&dev, "dev", false, "put the configuration's dev substitutions in force")
	return cmd
}

// tryModel makes one request from outside every sandbox, with the connection's
// own credential. It is the operator's call: no session, and no receipt.
func (c *cli) tryModel(ctx context.Context, cfg *config.Config, conf config.Connection, dev bool) error {
	up, err := newUpstream(cfg, nil, nil, dev)
	if err != nil {
		return err
	}
	defer func() { _ = up.Close() }() // it has no state that could be lost
	told := func(to authority.Authority) func(context.Context, string) (func(enforcers.Outcome), error) {
		return func(_ context.Context, method string) (func(enforcers.Outcome), error) {
			fmt.Fprintf(c.err, "gatehouse: %s %s\n", method, to)
			return func(enforcers.Outcome) {}, nil
		}
	}
	conn, err := modelConnection(conf)
	if err != nil {
		return err
	}
	to, err := model.Host(conn)
	if err != nil {
		return err
	}
	token, err := modelToken(mintCalls{up: up, begin: told, issued: func(context.Context, map[string]string, time.Time) error { return nil }}, conf)
	if err != nil {
		return err
	}
	key, err := token(ctx)
	if err != nil {
		return err
	}
	r, err := model.Check(conn, key)
	if err != nil {
		return err
	}
	transport, err := up.Node(upstream.NodeOptions{Purpose: "model.test", To: to, Begin: told(to), Timeout: mintLimit})
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r.WithContext(ctx))
	if err != nil {
		return problem.Wrap(err, problem.Unreachable, "the provider couldn't be reached: "+string(problem.CodeOf(err)), "check the network and the connection's host")
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode < 300:
		fmt.Fprintf(c.out, "%s: %s takes the credential\n", conf.Name, to.Host())
		return nil
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return problem.New(problem.Unauthenticated, fmt.Sprintf("%s refuses the credential (%d)", to.Host(), resp.StatusCode), "check the key and what it may be used for")
	default:
		return problem.New(problem.Unreachable, fmt.Sprintf("%s answered %d", to.Host(), resp.StatusCode), "")
	}
}
