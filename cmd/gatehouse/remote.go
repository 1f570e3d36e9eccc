package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/config"
	"gatehouse/internal/secret"
	"gatehouse/internal/view"
)

// socketName is the operator socket's name in the state folder.
const socketName = "gatehouse.sock"

// remote returns a client of the node that the configuration describes.
func (c *cli) remote(cmd *cobra.Command) (*api.Client, error) {
	cfg, err := config.Check(c.file(cmd))
	if err != nil {
		return nil, err
	}
	client := api.NewClient(filepath.Join(cfg.StateDir(), socketName))
	if t := os.Getenv(tokenVariable); t != "" {
		client.As(secret.FromString(t))
	}
	return client, nil
}

// tokenVariable holds an API token with which the verbs speak as its owner. It is
// no flag: command lines are read by everybody on the machine.
const tokenVariable = "GATEHOUSE_TOKEN"

// pages follows a list to its end, or to most items when most > 0.
func pages[T any](ctx context.Context, client *api.Client, path string, query url.Values, most int) ([]T, error) {
	var all []T
	for {
		q := url.Values{}
		for k, v := range query {
			q[k] = v
		}
		q.Set("limit", strconv.Itoa(view.MaxLimit))
		var page view.Page[T]
		if err := client.Get(ctx, path, q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if most > 0 && len(all) >= most {
			return all[:most], nil
		}
		if page.Next == "" {
			return all, nil
		}
		if query == nil {
			query = url.Values{}
		}
		query.Set("cursor", page.Next)
	}
}

// filters turns the flags that were set into a query.
func filters(flags map[string]*string) url.Values {
	q := url.Values{}
	for name, v := range flags {
		if *v != "" {
			q.Set(name, *v)
		}
	}
	return q
}

// filterFlags declares one string flag a filter.
func filterFlags(cmd *cobra.Command, help map[string]string) map[string]*string {
	out := map[string]*string{}
	for name, text := range help {
		out[name] = cmd.Flags().String(name, "", text)
	}
	return out
}
