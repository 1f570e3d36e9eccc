package receipts_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// rawFrame is one frame of an export as a test cuts it out and puts it back. It
// is read here by other code than the verifier's.
type rawFrame struct {
	line string // without length and newline
	body []byte // nil = none
}

var bodied = map[string]bool{
	"keyset": true, "bundle": true, "opening": true, "receipt": true, "event": true,
	"checkpoint": true, "manifest": true, "mark": true,
}

func (f rawFrame) word() string { w, _, _ := strings.Cut(f.line, " "); return w }

// split cuts a well-formed export into its frames.
func split(t testing.TB, file []byte) []rawFrame {
	t.Helper()
	var out []rawFrame
	for len(file) > 0 {
		line, rest, ok := bytes.Cut(file, []byte("\n"))
		if !ok {
			t.Fatal("no newline")
		}
		f := rawFrame{line: string(line)}
		file = rest
		if bodied[f.word()] {
			i := strings.LastIndexByte(f.line, ' ')
			n, err := strconv.Atoi(f.line[i+1:])
			if err != nil {
				t.Fatal(err)
			}
			f.line, f.body, file = f.line[:i], file[:n], file[n+1:]
		}
		out = append(out, f)
	}
	return out
}

// join is the inverse of split.
func join(frames []rawFrame) []byte {
	var b bytes.Buffer
	for _, f := range frames {
		b.WriteString(f.line)
		if f.body != nil {
			b.WriteString(" " + strconv.Itoa(len(f.body)) + "\n")
			b.Write(f.body)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// find returns the indexes of the frames with this word.
func find(frames []rawFrame, word string) (out []int) {
	for i, f := range frames {
		if f.word() == word {
			out = append(out, i)
		}
	}
	return out
}
