package gatekeeper

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func (w *world) apply1(src string) (Applied, error) {
	w.t.Helper()
	out, err := w.Apply(w.t.Context(), []File{{Name: "f.yaml", Source: []byte(src)}}, "config", "config")
	if err != nil {
		return Applied{}, err
	}
	return out[0], nil
}

func (w *world) mustApply(src, result string) Applied {
	w.t.Helper()
	a, err := w.apply1(src)
	if err != nil {
		w.t.Fatal(err)
	}
	if a.Result != result {
		w.t.Fatalf("%s (%s), want %s", a.Result, a.Why, result)
	}
	return a
}

// inForce returns the one bundle in force as "name mode digest[:8] +waiting".
func (w *world) inForceText() string {
	w.t.Helper()
	all, err := w.Bundles(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		d := f.Bundle.Digest()
		s := f.Bundle.Name + " " + string(f.Bundle.Mode) + " " + hex.EncodeToString(d[:4])
		for name, e := range f.Bundle.Enforcers {
			s += " " + name + "=" + string(e.Mode)
		}
		if f.Waiting != "" {
			s += " waiting " + f.Waiting[:8]
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func short(src string) string {
	b, err := bundle.Parse([]byte(src))
	if err != nil {
		return err.Error()
	}
	d := b.Digest()
	return hex.EncodeToString(d[:4])
}

const module = "enforcers: {dlp: {module: 'dlp@sha256:1111111111111111111111111111111111111111111111111111111111111111', mode: %}}\n"

func TestApply(t *testing.T) {
	wide := plus("b", "egress: [{host: '*.a.test'}]\n")
	narrow := plus("b", "egress: [{host: x.a.test}]\n")
	other := plus("b", "egress: [{host: z.test}]\n")
	hard := func(src string) string { return src + "mode: hard\n" }
	withModule := func(src, mode string) string { return src + strings.Replace(module, "%", mode, 1) }
	type step struct{ src, result, force string }
	cases := map[string][]step{
		"first_shadow":        {{wide, "applied", "b shadow " + short(wide)}},
		"first_hard":          {{hard(wide), "applied", "b hard " + short(wide)}},
		"again":               {{wide, "applied", ""}, {wide, "unchanged", "b shadow " + short(wide)}},
		"file_mode_is_first":  {{wide, "applied", ""}, {hard(wide), "unchanged", "b shadow " + short(wide)}},
		"no_way_back":         {{hard(wide), "applied", ""}, {wide, "unchanged", "b hard " + short(wide)}},
		"shadow_changes":      {{narrow, "applied", ""}, {other, "applied", "b shadow " + short(other)}},
		"hard_narrows":        {{hard(wide), "applied", ""}, {narrow, "applied", "b hard " + short(narrow)}},
		"hard_widens":         {{hard(narrow), "applied", ""}, {wide, "waiting", "b hard " + short(narrow) + " waiting " + short(wide)}},
		"hard_widens_again":   {{hard(narrow), "applied", ""}, {wide, "waiting", ""}, {wide, "waiting", "b hard " + short(narrow) + " waiting " + short(wide)}},
		"hard_incomparable":   {{hard(narrow), "applied", ""}, {other, "waiting", "b hard " + short(narrow) + " waiting " + short(other)}},
		"narrowing_ends_wait": {{hard(wide), "applied", ""}, {other, "waiting", ""}, {narrow, "applied", "b hard " + short(narrow)}},
		"hard_enforcer":       {{withModule(narrow, "hard"), "applied", ""}, {withModule(wide, "hard"), "waiting", "b shadow " + short(withModule(narrow, "hard")) + " dlp=hard waiting " + short(withModule(wide, "hard"))}},
		"hard_enforcer_gone":  {{withModule(narrow, "hard"), "applied", ""}, {narrow, "waiting", "b shadow " + short(withModule(narrow, "hard")) + " dlp=hard waiting " + short(narrow)}},
		"new_enforcer":        {{hard(wide), "applied", ""}, {withModule(narrow, "shadow"), "applied", "b hard " + short(withModule(narrow, "shadow")) + " dlp=shadow"}},
		"enforcer_keeps_mode": {{withModule(wide, "hard"), "applied", ""}, {withModule(narrow, "shadow"), "applied", "b shadow " + short(withModule(narrow, "hard")) + " dlp=hard"}},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			for _, s := range steps {
				w.mustApply(s.src, s.result)
				if s.force != "" && w.inForceText() != s.force {
					t.Errorf("in force: %s, want %s", w.inForceText(), s.force)
				}
			}
			// What is in force follows from the control chain alone: with the bucket
			// gone a restart makes the same of it.
			want := w.inForceText()
			w.Close()
			w.store.buckets["bundles"].keys = map[string]Entry{}
			w.start()
			if got := w.inForceText(); got != want {
				t.Errorf("rebuilt: %s, want %s", got, want)
			}
			n := len(w.newest())
			w.Close()
			w.start()
			w.mustApply(steps[len(steps)-1].src, map[bool]string{true: "waiting", false: "unchanged"}[steps[len(steps)-1].result == "waiting"])
			if len(w.newest()) != n {
				t.Error("a restart with the same files wrote a receipt")
			}
		})
	}
}

func TestApplyReceiptsAndHistory(t *testing.T) {
	w := newWorld(t, nil)
	wide, narrow := plus("b", "egress: [{host: '*.a.test'}]\n"), plus("b", "egress: [{host: x.a.test}]\n")
	w.mustApply(narrow+"mode: hard\n"+strings.Replace(module, "%", "shadow", 1), "applied")
	w.mustApply(wide+strings.Replace(module, "%", "shadow", 1), "waiting")
	type line struct{ Type, Result, From, To, Enforcer, By, Via string }
	var got []line
	for _, r := range w.newest() {
		c := r.Change
		got = append(got, line{string(r.Type), c.Result, string(c.From), string(c.To), c.Enforcer, c.By, c.Via})
		if c.Bundle != "b" || c.Digest.IsZero() {
			t.Errorf("change %+v", c)
		}
	}
	want := []line{
		{"bundle.apply", "applied", "", "hard", "", "config", "config"},
		{"mode.change", "applied", "", "shadow", "dlp", "config", "config"},
		{"bundle.apply", "waiting", "hard", "hard", "", "config", "config"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("control chain (-want +got):\n%s", diff)
	}
	h := w.History("b")
	if len(h) != 3 || h[2].Result != "waiting" || h[0].To != bundle.Hard || h[0].Receipt.IsZero() || !h[0].At.Equal(noon) {
		t.Errorf("history %+v", h)
	}
	if len(w.History("nobody")) != 0 {
		t.Error("an unknown bundle has a history")
	}
	w.Close()
	w.start()
	if diff := cmp.Diff(h, w.History("b")); diff != "" {
		t.Errorf("history after a restart:\n%s", diff)
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Run("not_a_bundle", func(t *testing.T) {
		w := newWorld(t, nil)
		if _, err := w.apply1("name: x\n"); problem.CodeOf(err) != problem.ConfigInvalid || !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("one_name_twice", func(t *testing.T) {
		w := newWorld(t, nil)
		_, err := w.Apply(t.Context(), []File{{"a.yaml", []byte(fixCI)}, {"b.yaml", []byte(fixCI)}}, "config", "config")
		if problem.CodeOf(err) != problem.ConfigInvalid || len(w.newest()) != 0 {
			t.Errorf("error %v, %d receipts", err, len(w.newest()))
		}
	})
	t.Run("lint", func(t *testing.T) {
		w := newWorld(t, nil)
		w.o.Lint = &bundle.LintContext{Providers: []string{"oci"}}
		a := w.mustApply(fixCI, "rejected")
		if len(a.Found) == 0 || a.Mode != "" || len(w.newest()) != 0 || w.inForceText() != "" {
			t.Errorf("%+v; in force %q", a, w.inForceText())
		}
	})
	t.Run("lint_keeps_what_is_in_force", func(t *testing.T) {
		w := newWorld(t, []string{fixCI})
		before := w.inForceText()
		w.o.Lint = &bundle.LintContext{Providers: []string{"oci"}}
		if a := w.mustApply(plus("fix-ci", "operations: [scm.comment]\n"), "rejected"); a.Mode != bundle.Shadow || w.inForceText() != before {
			t.Errorf("%+v; in force %q", a, w.inForceText())
		}
	})
	t.Run("journal_full", func(t *testing.T) {
		w := newWorld(t, nil)
		full := errors.New("full")
		w.log.refuse = func(*receipts.Receipt) error { return full }
		if _, err := w.apply1(fixCI); !errors.Is(err, full) || w.inForceText() != "" {
			t.Errorf("error %v; in force %q", err, w.inForceText())
		}
	})
	t.Run("changed_by_somebody_else", func(t *testing.T) {
		w := newWorld(t, []string{fixCI})
		b := w.store.bucket("bundles")
		w.log.refuse = func(*receipts.Receipt) error { // between reading and writing
			b.store.mu.Lock()
			defer b.store.mu.Unlock()
			e := b.keys["fix-ci"]
			b.set("fix-ci", e.Value)
			return nil
		}
		if _, err := w.apply1(plus("fix-ci", "operations: [scm.comment]\n")); problem.CodeOf(err) != problem.Conflict {
			t.Errorf("error %v", err)
		}
	})
}

func TestRegistryDistrusts(t *testing.T) {
	for name, value := range map[string]string{
		"no_json":      "x",
		"no_bundle":    `{"bytes":"{}","digest":"00"}`,
		"other_digest": `{"bytes":"` + strings.ReplaceAll(canonical(fixCI), `"`, `\"`) + `","digest":"00","mode":"hard"}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			if _, err := w.store.bucket("bundles").Create(t.Context(), "bad", []byte(value)); err != nil {
				t.Fatal(err)
			}
			if err := w.handle(t.Context(), w.log.message(failedRun("this"))); err == nil {
				t.Error("an event was judged while a bundle could not be read")
			}
		})
	}
}

func canonical(src string) string {
	b, err := bundle.Parse([]byte(src))
	if err != nil {
		return err.Error()
	}
	return string(b.Canonical())
}

// A bucket that fell back to an earlier state of ours is brought up to date;
// one that follows another node's receipt is not touched.
func TestRebuildRepairsOurOwnLoss(t *testing.T) {
	narrow, wide := plus("b", "egress: [{host: x.a.test}]\n"), plus("b", "egress: [{host: '*.a.test'}]\n")
	w := newWorld(t, []string{wide + "mode: hard\n"})
	old, err := w.store.bucket("bundles").Get(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	w.mustApply(narrow, "applied")
	want := w.inForceText()
	w.Close()
	w.store.buckets["bundles"].set("b", old.Value)
	w.start()
	if got := w.inForceText(); got != want {
		t.Errorf("in force %s, want %s", got, want)
	}
	foreign := strings.Replace(string(old.Value), `"receipt":"`, `"receipt":"x`, 1)
	w.Close()
	w.store.buckets["bundles"].set("b", []byte(foreign))
	w.start()
	if got := w.inForceText(); got == want {
		t.Error("another node's newer state was overwritten")
	}
}
