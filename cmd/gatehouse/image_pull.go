package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper/sandbox/image/pull"
	"gatehouse/internal/api"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
)

// purposeImage names the calls of a pull in receipts.
const purposeImage = "image.pull"

// imageTimeout bounds one request of a pull: layers are large.
const imageTimeout = 30 * time.Minute

func (c *cli) imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Fetch root file systems of sandboxes", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.imagePull())
	return cmd
}

func (c *cli) imagePull() *cobra.Command {
	var wish api.ImageWish
	var dev bool
	cmd := &cobra.Command{
		Use: "pull REGISTRY/NAME@sha256:DIGEST", Short: "Fetch an image by its digest into the node's images/ folder", Args: cobra.ExactArgs(1),
		Long: "Fetch an image by its digest from its registry into the node's images/ folder, for `rootfs: {oci: ...}` of bundles. No daemon\n" +
			"is needed. A running node does it; otherwise this command does, as the only writer of the node's log. Each request is a receipt\n" +
			"of the control chain. Only the registry is asked, and the hosts that --also and --connection name.",
		Example: "  gatehouse image pull registry.example.com/tools/go@sha256:0123... --connection registry-main --also layers.example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			wish.Image = args[0]
			if _, err := pull.Parse(wish.Image); err != nil {
				return err
			}
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var got api.PulledImage
			if e := client.Get(cmd.Context(), "/v1/status", nil, &api.Status{}); problem.CodeOf(e) == problem.Unreachable {
				got, err = c.pullOffline(cmd, wish, dev)
			} else {
				err = client.Post(cmd.Context(), "/v1/node/image?"+url.Values{
					"image": {wish.Image}, "connection": {wish.Connection}, "also": wish.Also, "max_mib": {strconv.FormatInt(wish.MaxMiB, 10)},
				}.Encode(), nil, &got)
			}
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(got)
			}
			c.field("image", got.Image)
			c.field("layout", got.Layout)
			c.field("layers", fmt.Sprint(got.Layers))
			c.field("bytes", fmt.Sprint(got.Bytes))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&wish.Connection, "connection", "", "connection of kind http whose credential the registry, or the host that gives out its tokens, gets")
	f.StringArrayVar(&wish.Also, "also", nil, "further host that the registry may send to, for layers or tokens; may be repeated")
	f.Int64Var(&wish.MaxMiB, "max-mib", pull.Most>>20, "the most that the image's layers may take together")
	f.BoolVar(&dev, "dev", false, "put the configuration's dev substitutions in force, when no node runs")
	return cmd
}

// PullImage fetches an image for a running node.
func (m maintenance) PullImage(ctx context.Context, wish api.ImageWish, by api.Actor) (api.PulledImage, error) {
	got, err := m.n.pullImage(ctx, m.cfg, m.up, wish, m.dev)
	if err == nil {
		m.n.log.InfoContext(ctx, "image pulled", "image", got.Image, "bytes", got.Bytes, "by", by.Name)
	}
	return got, err
}

// pullOffline opens the log of a stopped node as its only writer.
func (c *cli) pullOffline(cmd *cobra.Command, wish api.ImageWish, dev bool) (got api.PulledImage, err error) {
	cfg, err := config.Load(c.file(cmd))
	if err != nil {
		return got, err
	}
	s, err := openState(cfg)
	if err != nil {
		return got, err
	}
	up, err := newUpstream(cfg, nil, nil, dev)
	if err != nil {
		return got, err
	}
	defer func() { _ = up.Close() }() // it has no state that could be lost
	keys, err := notary.OpenKeys(s.keys)
	if err != nil {
		return got, err
	}
	n := &node{notary: notary.New(notary.Options{Node: cfg.Node, Keys: keys, Keep: append([]string{s.log}, cfg.CheckpointDirs()...)})}
	j, err := journal.Open(s.journal, journal.Options{Seal: n.notary.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := n.notary.Start(cmd.Context(), j); err != nil {
		return got, err
	}
	return n.pullImage(cmd.Context(), cfg, up, wish, dev && !cfg.Dev.Zero())
}

// pullImage makes an exit for each host that may be asked, and pulls. The
// credential is added last, to requests to its connection's own host that bring
// none: a token that the registry gave out stays what it is.
func (n *node) pullImage(ctx context.Context, cfg *config.Config, up *upstream.Client, wish api.ImageWish, dev bool) (api.PulledImage, error) {
	none := api.PulledImage{}
	img, err := pull.Parse(wish.Image)
	if err != nil {
		return none, err
	}
	if wish.MaxMiB < 1 || wish.MaxMiB > 1<<20 {
		return none, usage("--max-mib is not 1 to 1048576", "")
	}
	exits := map[string]http.RoundTripper{}
	add := func(host, connection string, inject func(context.Context, *http.Request) error) error {
		to, err := authority.ParseHostHeader(authority.HTTPS, host)
		if err != nil || to.IsIP() {
			return problem.New(problem.Usage, "a host of the pull is not a host name", "write HOST or HOST:PORT")
		}
		exit, err := up.Node(upstream.NodeOptions{Purpose: purposeImage, To: to, Timeout: imageTimeout, Begin: n.begin(purposeImage, connection, to, dev), Inject: inject})
		if err == nil {
			exits[to.HostHeader()] = exit
		}
		return err
	}
	for _, host := range append(slices.Clone(wish.Also), img.Host()) {
		if err := add(host, "", nil); err != nil {
			return none, err
		}
	}
	if wish.Connection != "" {
		at := slices.IndexFunc(cfg.Connections, func(c config.Connection) bool { return c.Name == wish.Connection && c.Kind == "http" })
		if at < 0 {
			return none, problem.New(problem.NotFound, "there is no connection "+wish.Connection+" of kind http", "look under connections: in the configuration")
		}
		one, err := credentialOf(cfg.Connections[at])
		if err != nil {
			return none, err
		}
		cs, err := upstream.NewConnections([]upstream.Credential{one})
		if err != nil {
			return none, problem.Wrap(err, problem.ConfigInvalid, err.Error(), "")
		}
		own := cs.Own(wish.Connection)
		if err := add(one.To.HostHeader(), wish.Connection, func(ctx context.Context, r *http.Request) error {
			if r.Header.Get("Authorization") != "" { // IM-05
				return nil
			}
			return own(ctx, r)
		}); err != nil {
			return none, err
		}
	}
	got, err := pull.Pull(ctx, pull.Options{Image: img, Exits: exits, Folder: filepath.Join(cfg.StateDir(), imagesFolder), Most: wish.MaxMiB << 20})
	return api.PulledImage(got), err
}
