package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// logProofVersion is the first line of a C2SP tlog-proof.
const logProofVersion = "c2sp.org/tlog-proof@v1"

// LogProof shows that one leaf is in a log: a C2SP tlog-proof, a text file that
// stands beside the leaf's bytes like a detached signature. It proves that the
// log holds the leaf, not that a session's chain is whole: Verify does that.
type LogProof struct {
	Proof      Proof
	Checkpoint []byte // note
}

// Encode returns the text form, for a file with the extension .tlog-proof.
func (p *LogProof) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nindex %d\n", logProofVersion, p.Proof.Index)
	for _, h := range p.Proof.Path {
		fmt.Fprintf(&b, "%s\n", strictBase64.EncodeToString(h[:]))
	}
	b.WriteByte('\n')
	b.Write(p.Checkpoint)
	return b.Bytes()
}

// ParseLogProof reads what Encode writes. Nothing in it is verified. The "extra"
// line that other tools may write is not accepted: nothing authenticates it.
func ParseLogProof(b []byte) (*LogProof, error) {
	head, checkpoint, ok := bytes.Cut(b, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if len(b) > maxNote || !ok || len(lines) < 2 || len(lines) > 2+maxPath {
		return nil, errors.New("log proof: malformed")
	}
	if lines[0] != logProofVersion {
		return nil, fmt.Errorf("log proof: %w: %.40q", ErrUnsupported, lines[0])
	}
	number, ok := strings.CutPrefix(lines[1], "index ")
	if !ok {
		return nil, errors.New("log proof: no index")
	}
	p := &LogProof{Checkpoint: checkpoint}
	var err error
	if p.Proof.Index, err = parseNumber([]byte(number)); err != nil {
		return nil, fmt.Errorf("log proof: index: %w", err)
	}
	for _, l := range lines[2:] {
		h, err := strictBase64.DecodeString(l)
		if err != nil || len(h) != len(Hash{}) {
			return nil, errors.New("log proof: malformed hash")
		}
		p.Proof.Path = append(p.Proof.Path, Hash(h))
	}
	return p, nil
}

// Verify checks that payload is the leaf that the proof is about, in the tree of
// a checkpoint by a key of ks. It returns that checkpoint.
func (p *LogProof) Verify(payload []byte, ks *Keyset) (*Checkpoint, error) {
	cp, err := ParseCheckpoint(p.Checkpoint, ks)
	if err != nil {
		return nil, err
	}
	if err := p.Proof.Check(cp.Size, cp.Root, Leaf(payload)); err != nil {
		return nil, err
	}
	return cp, nil
}
