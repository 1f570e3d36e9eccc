package main

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/gatekeeper"
	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// bundleChanges are the verbs by which people change what is in force.
func (c *cli) bundleChanges() []*cobra.Command {
	return []*cobra.Command{
		c.bundleSuggest(), c.bundlePropose(), c.bundleProposals(), c.bundleApprove(), c.bundleReject(), c.bundlePromote(), c.bundleRollback(),
		c.bundleReasoned("pause", "Stop a bundle from starting sessions; one person may"),
		c.bundleReasoned("resume", "End a pause; under hard mode that waits for approval"),
	}
}

// reasonFlag is the words that stand in a step's receipt.
func reasonFlag(cmd *cobra.Command) *string {
	reason := cmd.Flags().String("reason", "", "why, in a sentence; stands in the receipt")
	_ = cmd.MarkFlagRequired("reason") // the flag is there
	return reason
}

// state is what became of a proposal, for people.
func proposalLine(p review.Proposal) string {
	if p.ID == "" {
		return "done"
	}
	if p.State != gatekeeper.ProposalOpen {
		return "proposal " + p.ID + " is " + p.State
	}
	return fmt.Sprintf("proposal %s waits: %d people are needed", p.ID, p.Needs)
}

// waits turns an open proposal into exit 3, as a waiting apply is.
func waits(err error, p review.Proposal) error {
	if err == nil && p.State == gatekeeper.ProposalOpen {
		return &exitError{code: exitNegative}
	}
	return err
}

func (c *cli) bundleSuggest() *cobra.Command {
	cmd := &cobra.Command{
		Use: "suggest GROUP", Short: "Offer changes of a bundle that would allow a group: a set that fits several hosts, then from narrow to wide", Args: cobra.ExactArgs(1),
	}
	rung := cmd.Flags().Int("rung", 0, "print this one's whole candidate as YAML, 1 for the first")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		var l review.Ladder
		if err := client.Get(cmd.Context(), "/v1/would-blocks/"+url.PathEscape(args[0])+"/suggestions", nil, &l); err != nil {
			return err
		}
		switch {
		case *rung < 0 || *rung > len(l.Rungs):
			return usage(fmt.Sprintf("there are %d rungs", len(l.Rungs)), "")
		case *rung > 0:
			_, err = fmt.Fprint(c.out, l.Rungs[*rung-1].Candidate)
		case c.output != "table":
			err = c.json(l)
		default:
			for i, r := range l.Rungs {
				c.field(strconv.Itoa(i+1), fmt.Sprintf("%s: %s", r.Kind, r.Title))
				for _, a := range r.Authority {
					c.field("gives", a)
				}
				for _, a := range r.Caution {
					c.field("look twice", a)
				}
				c.field("covers", fmt.Sprintf("%d past attempts in %d groups", r.Covers, r.Groups))
				fmt.Fprint(c.out, r.Entry)
			}
			if l.Refuse != "" {
				_, err = fmt.Fprintln(c.out, "nothing is offered: "+l.Refuse)
			}
		}
		if err == nil && l.Refuse != "" {
			return &exitError{code: exitNegative}
		}
		return err
	}
	return cmd
}

func (c *cli) bundlePropose() *cobra.Command {
	cmd := &cobra.Command{Use: "propose FILE", Short: "Make a bundle version wait for approval; exit 3 while it does", Args: cobra.ExactArgs(1)}
	reason := reasonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := readBundle(args[0])
		if err != nil {
			return err
		}
		src, err := os.ReadFile(args[0])
		if err != nil {
			return problem.Wrap(err, problem.Usage, "couldn't read "+args[0], "")
		}
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		var p review.Proposal
		if err := client.Post(cmd.Context(), "/v1/bundles/"+url.PathEscape(b.Name)+"/proposals?"+url.Values{"reason": {*reason}}.Encode(), src, &p); err != nil {
			return err
		}
		return waits(c.proposal(p), p)
	}
	return cmd
}

func (c *cli) bundleProposals() *cobra.Command {
	cmd := &cobra.Command{Use: "proposals", Short: "List proposals, the newest first", Args: cobra.NoArgs}
	flags := filterFlags(cmd, map[string]string{"state": "open, applied, rejected or replaced", "bundle": "bundle name"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		var page view.Page[review.Proposal]
		if err := client.Get(cmd.Context(), "/v1/proposals", filters(flags), &page); err != nil {
			return err
		}
		return rows(c, page.Items, []string{"proposal", "bundle", "asks for", "state", "by", "approvals", "needs", "time"}, func(p review.Proposal) []string {
			var yes []string
			for _, a := range p.Approvals {
				yes = append(yes, a.By)
			}
			return []string{p.ID, p.Bundle, asks(p), p.State, p.By, strings.Join(yes, " "), strconv.Itoa(p.Needs), stamp(p.Time)}
		})
	}
	return cmd
}

func asks(p review.Proposal) string {
	switch p.Kind {
	case gatekeeper.ProposeMode:
		return strings.TrimSpace(p.Enforcer + " " + p.To)
	case gatekeeper.ProposeVersion:
		return p.Digest[:12]
	}
	return p.Kind
}

// proposal prints what an approver must have seen.
func (c *cli) proposal(p review.Proposal) error {
	if c.output != "table" {
		return c.json(p)
	}
	if p.ID == "" {
		_, err := fmt.Fprintln(c.out, "done")
		return err
	}
	c.field("proposal", p.ID)
	c.field("bundle", p.Bundle)
	c.field("asks for", asks(p))
	c.field("by", p.By)
	c.field("reason", p.Reason)
	for _, a := range p.Authority {
		c.field("gives", a)
	}
	if len(p.Beside) > 0 {
		c.field("beside", strings.Join(p.Beside, " "))
	}
	c.field("state", p.State)
	if len(p.Drifted) > 0 {
		c.field("changed", strings.Join(p.Drifted, " ")+" since then: propose it again")
	}
	if p.State == gatekeeper.ProposalOpen {
		c.field("needs", fmt.Sprintf("%d people; approve with --digest %s", p.Needs, p.Digest))
	}
	_, err := fmt.Fprint(c.out, p.Diff)
	return err
}

func (c *cli) bundleApprove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "approve PROPOSAL", Short: "Say yes to a proposal; without --digest, show what it is",
		Long: "Say yes to a proposal. Without --digest it is shown and nothing happens (exit 3): the digest says that you saw\n" +
			"exactly what you approve. Who made a proposal cannot approve it, with a token neither; the machine's user is\n" +
			"nobody in particular and cannot unless promotion.approvers is 1. " + tokenVariable + " holds an API token to speak as its owner.",
		Args: cobra.ExactArgs(1),
	}
	digest := cmd.Flags().String("digest", "", "of the version that was shown")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		path := "/v1/proposals/" + url.PathEscape(args[0])
		var p review.Proposal
		if *digest == "" {
			if err := client.Get(cmd.Context(), path, nil, &p); err != nil {
				return err
			}
			return waits(c.proposal(p), p)
		}
		if err := client.Send(cmd.Context(), path+"/approve", api.ApprovalRequest{Digest: *digest}, nil, &p); err != nil {
			return err
		}
		if c.output != "table" {
			return waits(c.json(p), p)
		}
		_, err = fmt.Fprintln(c.out, proposalLine(p))
		return waits(err, p)
	}
	return cmd
}

func (c *cli) bundleReject() *cobra.Command {
	cmd := &cobra.Command{Use: "reject PROPOSAL", Short: "End a proposal", Args: cobra.ExactArgs(1)}
	reason := reasonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return send(c, cmd, "/v1/proposals/"+url.PathEscape(args[0])+"/reject", api.Reasoned{Reason: *reason}, proposalLine)
	}
	return cmd
}

func (c *cli) bundlePromote() *cobra.Command {
	cmd := &cobra.Command{Use: "promote BUNDLE", Short: "Ask for hard mode of a bundle, or of one added enforcer; exit 3 while it waits", Args: cobra.ExactArgs(1)}
	reason := reasonFlag(cmd)
	enforcer := cmd.Flags().String("enforcer", "", "one added enforcer instead of the bundle")
	to := cmd.Flags().String("to", "hard", "hard, or shadow: a widening like any other")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		var p review.Proposal
		if err := client.Send(cmd.Context(), "/v1/bundles/"+url.PathEscape(args[0])+"/promote", api.ModeRequest{Enforcer: *enforcer, To: *to, Reason: *reason}, nil, &p); err != nil {
			return err
		}
		return waits(c.proposal(p), p)
	}
	return cmd
}

func (c *cli) bundleRollback() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback BUNDLE DIGEST", Short: "Put an earlier version back in force; under hard mode one that the present version covers", Args: cobra.ExactArgs(2),
	}
	reason := reasonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return send(c, cmd, "/v1/bundles/"+url.PathEscape(args[0])+"/rollback", api.RollbackRequest{Digest: args[1], Reason: *reason}, func(api.Named) string { return "rolled back" })
	}
	return cmd
}

func (c *cli) bundleReasoned(verb, short string) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " BUNDLE", Short: short, Args: cobra.ExactArgs(1)}
	reason := reasonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "/v1/bundles/" + url.PathEscape(args[0]) + "/" + verb
		if verb == "pause" {
			return send(c, cmd, path, api.Reasoned{Reason: *reason}, func(api.Named) string { return "paused" })
		}
		return send(c, cmd, path, api.Reasoned{Reason: *reason}, proposalLine)
	}
	return cmd
}
