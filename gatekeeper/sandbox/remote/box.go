package remote

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// Limits of what a machine may say of one session.
const (
	maxProbeCases    = 1_000
	maxArtifacts     = 1_000
	maxArtifactBytes = 1 << 30 // of all together
	maxName          = 4 << 10
	finalBytes       = 4 << 10
	cleanupWithin    = 15 * time.Second
)

// box is one sandbox on the other machine.
type box struct {
	p        *Provider
	spec     sandbox.Spec
	plan     sandbox.Plan
	withDoor bool
	leave    func() // ends the key to the door and what it carries
	log      *transcript

	mu       sync.Mutex
	began    string // "", "probe" or "run"
	closing  bool
	closed   chan struct{}
	active   sync.WaitGroup // Probe and Run, which Close waits for
	closeErr error
	once     sync.Once
}

func (b *box) path(rest string) string { return PathSessions + "/" + b.spec.Session + rest }

// enter records that step begins, each of which may happen once and in order.
func (b *box) enter(step string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	order := []string{"", "probe", "run"}
	if b.closing || slices.Index(order, step) <= slices.Index(order, b.began) {
		return fmt.Errorf("remote: %s after %s or Close", step, b.began)
	}
	b.began = step
	b.active.Add(1)
	return nil
}

// untilClosed returns a context that ends with ctx or with Close.
func (b *box) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-b.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Probe asks the machine to make the attempts, and the door what it met.
func (b *box) Probe(ctx context.Context) (sandbox.Report, error) {
	report := sandbox.Report{Provider: b.p.Name(), At: time.Now().UTC()}
	if err := b.enter("probe"); err != nil {
		return report, err
	}
	defer b.active.Done()
	ctx, cancel := b.untilClosed(ctx)
	defer cancel()
	if b.withDoor && b.spec.Witness != nil {
		b.spec.Witness.Expect(sandbox.Nonces(b.plan.Targets))
	}
	var answer Cases
	if err := b.p.call(ctx, http.MethodPost, b.path("/probe"), nil, &answer, maxCases); err != nil {
		return report, unreachable(err)
	}
	report.Cases = judged(answer.Cases)
	if b.withDoor {
		report.Cases = sandbox.Witnessed(b.spec.Witness, b.plan.Targets, report.Cases)
		if !slices.ContainsFunc(report.Cases, func(c sandbox.Case) bool {
			return c.ID == "SB-09" && c.Proves == sandbox.DoorOnly && c.Outcome == sandbox.Passed
		}) {
			// "absent" would leave nothing for the door to confirm.
			report.Cases = append(report.Cases, sandbox.Case{ID: "SB-09", Name: "the way to the door", Outcome: sandbox.Failed, Evidence: "the door met none of its nonces", Proves: sandbox.DoorOnly})
		}
	}
	return report, nil
}

// judged bounds what the machine says. A case with an outcome that is none has
// failed, and so has a list that is too long to be true.
func judged(said []Case) []sandbox.Case {
	var out []sandbox.Case
	for _, c := range said[:min(len(said), maxProbeCases)] {
		k := sandbox.Case{ID: line(c.ID), Name: line(c.Name), Outcome: c.Outcome, Evidence: line(c.Evidence), Proves: c.Proves}
		if k.Outcome != sandbox.Passed && k.Outcome != sandbox.Absent {
			k.Outcome = sandbox.Failed
		}
		out = append(out, k)
	}
	if len(said) > maxProbeCases {
		out = append(out, sandbox.Case{ID: "probe", Outcome: sandbox.Failed, Evidence: fmt.Sprintf("%d cases", len(said))})
	}
	return out
}

// Run runs the agent there and returns how it ended. Whatever happens to the
// other machine or to the way there, the session's key is dead when it returns.
func (b *box) Run(ctx context.Context) (sandbox.End, error) {
	if err := b.enter("run"); err != nil {
		return sandbox.End{}, err
	}
	defer b.active.Done()
	defer b.leave()
	began := time.Now()
	life, cancel := b.untilClosed(context.WithoutCancel(ctx))
	defer cancel()
	// A cancelled agent is asked to go and given its grace; only then is the run
	// itself given up.
	stop := context.AfterFunc(ctx, func() {
		asked, done := context.WithTimeout(life, cleanupWithin)
		defer done()
		_ = b.p.call(asked, http.MethodPost, b.path("/cancel"), nil, nil, 0)
		give := time.NewTimer(max(b.spec.Grace, 2*time.Second) + Silent)
		defer give.Stop()
		select {
		case <-give.C:
			cancel()
		case <-life.Done():
		}
	})
	defer stop()
	end := b.follow(life, ctx)
	if end.Reason == sandbox.Lost && b.isClosing() {
		end.Reason, end.Detail = sandbox.Cancelled, ""
	}
	end.Wall = time.Since(began)
	b.log.finish(&end)
	if err := b.fetch(life, &end); err != nil {
		return end, err
	}
	return end, b.log.close()
}

func (b *box) isClosing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing
}

// lost is the end of a session whose machine is gone, or says what cannot be.
func lost(detail string) sandbox.End {
	return sandbox.End{Exit: 128 + 9, Reason: sandbox.Lost, Detail: detail}
}

// follow reads the run to its last line. A machine that says nothing for Silent
// is gone.
func (b *box) follow(life, asked context.Context) sandbox.End {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	quiet := time.AfterFunc(Silent, cancel)
	defer quiet.Stop()
	resp, err := b.p.request(ctx, b.p.o.Runs, http.MethodPost, b.path("/run"), nil)
	if err != nil {
		if asked.Err() != nil {
			return sandbox.End{Exit: 128 + 9, Reason: sandbox.Cancelled}
		}
		return lost("the run did not start: " + line(err.Error()))
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), MaxLine)
	for lines.Scan() {
		quiet.Reset(Silent)
		var l Line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return lost("the machine's words")
		}
		if !b.log.take(l.Out) {
			return sandbox.End{Exit: 128 + 9, Reason: sandbox.Faulted, Detail: "output"} // no grace for a tripwire
		}
		if l.End != nil {
			return ended(l.End)
		}
	}
	if asked.Err() != nil {
		return sandbox.End{Exit: 128 + 9, Reason: sandbox.Cancelled}
	}
	return lost("the machine is gone")
}

// ended is the machine's word on an end, held to what an end can be.
func ended(e *Ended) sandbox.End {
	end := sandbox.End{Exit: e.Exit, Reason: e.Reason, Detail: line(e.Detail), Final: strings.ToValidUTF8(e.Final[:min(len(e.Final), finalBytes)], "\uFFFD")}
	if end.Exit < 0 || end.Exit > 255 || (end.Reason == sandbox.Completed && end.Exit != 0) {
		return lost("an end that cannot be")
	}
	if !slices.Contains([]string{sandbox.Completed, sandbox.Faulted, sandbox.Timeout, sandbox.Cancelled, sandbox.Lost}, end.Reason) {
		return lost("an end without a reason")
	}
	if len(e.Artifacts) > maxArtifacts {
		end.Skipped = append(end.Skipped, fmt.Sprintf("%d files: more than %d", len(e.Artifacts), maxArtifacts))
	} else {
		end.Artifacts = e.Artifacts
	}
	for _, s := range e.Skipped[:min(len(e.Skipped), maxArtifacts)] {
		end.Skipped = append(end.Skipped, line(s))
	}
	return end
}

// fetch brings the artifacts here. SB-34: names are the agent's words, by way of
// another machine; a digest counts only when the bytes have it.
func (b *box) fetch(ctx context.Context, end *sandbox.End) error {
	put := b.p.o.Put
	if put == nil {
		put = hashOnly
	}
	claimed := end.Artifacts
	end.Artifacts = map[string]string{}
	left := int64(maxArtifactBytes)
	have := map[string]bool{}
	for name, sum := range claimed {
		skip := func(why string) { end.Skipped = append(end.Skipped, line(name)+": "+why) }
		switch {
		case name == "" || len(name) > maxName || strings.HasPrefix(name, "/") || path.Clean(name) != name || strings.HasPrefix(name, "../") || name == "..":
			skip("not a name below /gatehouse/out")
			continue
		case !digestForm.MatchString(sum):
			skip("no digest")
			continue
		}
		if !have[sum] {
			got, n, err := b.artifact(ctx, sum, left, put)
			if errors.Is(err, errStore) {
				return err
			}
			if left -= n; err != nil || got != sum {
				skip("not what the machine said it was")
				continue
			}
			have[sum] = true
		}
		end.Artifacts[name] = sum
	}
	slices.Sort(end.Skipped)
	return nil
}

// errStore marks a fault of this node's own store.
var errStore = errors.New("artifacts")

func (b *box) artifact(ctx context.Context, sum string, left int64, put func(io.Reader) (string, int64, error)) (string, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(Silent, cancel)
	defer quiet.Stop()
	resp, err := b.p.request(ctx, b.p.o.Runs, http.MethodGet, b.path("/artifacts/"+sum), nil)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	// One byte more than is left tells a file that fills it from one that does not fit.
	body := &alive{r: io.LimitReader(resp.Body, left+1), quiet: quiet}
	got, n, err := put(body)
	switch {
	case body.err != nil:
		return "", n, body.err
	case err != nil:
		return "", n, fmt.Errorf("%w: %w", errStore, err)
	case n > left:
		return "", n, errors.New("over 1 GiB in all")
	}
	return got, n, nil
}

// alive is a body whose every read says that the other side lives.
type alive struct {
	r     io.Reader
	quiet *time.Timer
	err   error // of the other side
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	a.quiet.Reset(Silent)
	if err != nil && !errors.Is(err, io.EOF) {
		a.err = err
	}
	return n, err
}

func hashOnly(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// Close ends the key to the door first, then the sandbox there. A machine that
// does not answer ends it by itself: a run whose reader is gone is over, and a
// sandbox that nobody runs has a lease.
func (b *box) Close() error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.once.Do(func() {
		close(b.closed)
		b.leave()
		b.active.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
		defer cancel()
		if err := b.p.call(ctx, http.MethodDelete, b.path(""), nil, nil, 0); err != nil {
			b.closeErr = fmt.Errorf("the remote machine was not told that a sandbox is over: %w", err)
		}
		b.closeErr = errors.Join(b.closeErr, b.log.close())
	})
	return b.closeErr
}
