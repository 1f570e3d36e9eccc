package bus_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
)

// TestTamperBundleAuditor gives an auditor the sessions of one bundle, against
// the deployed configuration, and tries everything else (RC-46).
func TestTamperBundleAuditor(t *testing.T) {
	a := bus.Auditor{Name: "bea", Bundle: "fix"}
	creds, err := a.NewCredentials(nil, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	url, admin, node := deployed(t, creds.User)
	makeStreams(t, url, admin)
	b, j := open(t, bus.Options{URL: url, Creds: node}), openJournal(t, t.TempDir())
	ctx := context60(t)
	put := func(bundle, session string, pos uint64) {
		t.Helper()
		if err := b.PutCopy(ctx, bundle, session, pos, bus.Msg{Data: fmt.Appendf(nil, "%d", pos), Header: map[string]string{"Nats-Msg-Id": fmt.Sprint(pos)}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.LastCopy(ctx, "fix", "*"); !errors.Is(err, bus.ErrNotFound) {
		t.Fatal(err)
	}
	put("fix", "S1", 1)
	if err := b.AddAuditor(ctx, a); err != nil {
		t.Fatal(err)
	}
	put("fix", "S1", 2)
	put("other", "S2", 3)
	put("fix", "S3", 4)
	put("fix", "S3", 4) // again after an answer that was lost
	if m, pos, err := b.LastCopy(ctx, "fix", "*"); err != nil || pos != 4 || string(m.Data) != "4" {
		t.Fatalf("%d %v", pos, err)
	}
	if _, pos, err := b.LastCopy(ctx, "fix", "S1"); err != nil || pos != 2 {
		t.Fatalf("%d %v", pos, err)
	}
	add(t, j, event("e1", "{}"), receipt(1, 0), receipt(2, 0))
	pumping(t, b, j)
	stored(t, b, j)

	nc, refused := auditor(t, url, "bea", creds.File)
	if d := cmp.Diff([]string{"gatehouse.v1.audit.fix.n1.S1", "gatehouse.v1.audit.fix.n1.S1", "gatehouse.v1.audit.fix.n1.S3"}, pull(t, nc, bus.Audit, "bea", 3)); d != "" {
		t.Fatal(d)
	}
	put("other", "S2", 5)
	put("fix", "S4", 6) // a session that opens while the auditor reads
	if d := cmp.Diff([]string{"gatehouse.v1.audit.fix.n1.S4"}, pull(t, nc, bus.Audit, "bea", 1)); d != "" {
		t.Fatal(d)
	}

	// RC-46: nothing but the two consumers.
	t.Run("RC-46_may_not", func(t *testing.T) {
		before := map[string]map[string][]string{}
		for _, s := range []string{bus.Events, bus.Sessions, bus.Audit} {
			before[s] = contents(t, b, s)
		}
		subjects := []string{
			"gatehouse.v1.audit.fix.n1.S1", "gatehouse.v1.sessions.S1", "gatehouse.v1.log.n1",
			"GATEHOUSE.API.CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.auditor_bea", "GATEHOUSE.API.CONSUMER.MSG.NEXT.GATEHOUSE_AUDIT.auditor_other",
			"$JS.API.CONSUMER.MSG.NEXT.GATEHOUSE_AUDIT.auditor_bea",
		}
		for _, s := range streamNames {
			for _, verb := range []string{"STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.LIST"} {
				subjects = append(subjects, "$JS.API."+verb+"."+s, bus.AuditorAPI+"."+verb+"."+s)
			}
			subjects = append(subjects, "$JS.API.CONSUMER.CREATE."+s+".auditor_bea", "$JS.API.CONSUMER.DELETE."+s+".auditor_bea")
		}
		for _, s := range subjects {
			if err := nc.PublishRequest(s, "_INBOX_bea.x", []byte(`{"config":{"filter_subject":"gatehouse.v1.audit.>","deliver_subject":"gatehouse.v1.events.a.b.c.d.e"}}`)); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Fatalf("%s: %v", s, err)
				}
			case <-time.After(deadline):
				t.Fatalf("%s was not refused", s)
			}
		}
		for s, was := range before {
			if d := cmp.Diff(was, contents(t, b, s)); d != "" {
				t.Errorf("%s has changed: %s", s, d)
			}
		}
	})

	t.Run("names_and_room", func(t *testing.T) {
		for _, bad := range []bus.Auditor{{Name: "x", Bundle: "a.b"}, {Name: "x", Bundle: ">"}, {Name: "x", Bundle: "fix", Session: "S1"}} {
			if err := b.AddAuditor(ctx, bad); problem.CodeOf(err) != problem.Usage {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if err := b.AddAuditor(ctx, bus.Auditor{Name: "bea"}); problem.CodeOf(err) != problem.Conflict {
			t.Errorf("one name, two auditors: %v", err)
		}
		for i := 1; i < bus.MaxAudited; i++ {
			if err := b.AddAuditor(ctx, bus.Auditor{Name: fmt.Sprintf("a%d", i), Bundle: fmt.Sprintf("b%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.AddAuditor(ctx, bus.Auditor{Name: "more", Bundle: "more"}); problem.CodeOf(err) != problem.AuditFull {
			t.Errorf("one bundle too many: %v", err)
		}
		if err := b.AddAuditor(ctx, bus.Auditor{Name: "cy", Bundle: "fix"}); err != nil {
			t.Errorf("a second auditor of a bundle: %v", err)
		}
		if have, err := b.Audited(ctx); err != nil || len(have) != bus.MaxAudited {
			t.Errorf("%v %v", have, err)
		}
	})
	for range 2 { // the second finds nobody
		err = b.RemoveAuditor(ctx, "bea")
	}
	if problem.CodeOf(err) != problem.NotFound {
		t.Fatal(err)
	}
}
