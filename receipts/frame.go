package receipts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"gatehouse/internal/canon"
)

// errCut is the end of the input inside an export: what was read so far is a
// prefix.
var errCut = errors.New("the file ends before its end line")

// frame is one line of an export with its body.
type frame struct {
	off  int64    // of the line in the file
	word []byte   // its first word
	args [][]byte // the others
	body []byte   // nil for a frame without one
}

// frameReader reads frames. Everything it returns is valid until the next one.
type frameReader struct {
	r    *bufio.Reader
	off  int64
	max  int64 // bytes that may still be read
	line []byte
	body []byte
	f    frame
}

func newFrameReader(r io.Reader, limit int64) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10), max: limit}
}

// readLine reads a line without its newline.
func (fr *frameReader) readLine() ([]byte, error) {
	fr.line = fr.line[:0]
	for {
		part, err := fr.r.ReadSlice('\n')
		fr.line = append(fr.line, part...)
		fr.off += int64(len(part))
		fr.max -= int64(len(part))
		switch {
		case len(fr.line) > maxLine || fr.max < 0: // RC-45
			return nil, errors.New("line or file above the limit")
		case err == nil:
			return fr.line[:len(fr.line)-1], nil
		case errors.Is(err, io.EOF):
			return nil, errCut
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("read: %w", err)
		}
	}
}

// next reads one frame. withBody says which words carry a body.
func (fr *frameReader) next() (*frame, error) {
	fr.f = frame{off: fr.off, args: fr.f.args[:0]}
	line, err := fr.readLine()
	if err != nil {
		return nil, err
	}
	for i, w := range bytes.Split(line, []byte{' '}) {
		if len(w) == 0 {
			return nil, errors.New("words are separated by one space")
		}
		if i == 0 {
			fr.f.word = w
			continue
		}
		fr.f.args = append(fr.f.args, w)
	}
	switch string(fr.f.word) {
	case wordKeyset, wordBundle, wordOpening, wordReceipt, wordEvent, wordCheckpoint, wordManifest, wordMark:
		if err := fr.readBody(); err != nil {
			return nil, err
		}
	}
	return &fr.f, nil
}

// readBody reads the body whose length is the line's last word.
func (fr *frameReader) readBody() error {
	last := len(fr.f.args) - 1
	if last < 0 {
		return errors.New("no length")
	}
	n, err := parseNumber(fr.f.args[last])
	if err != nil {
		return err
	}
	if n == 0 || n > MaxBody || int64(n) >= fr.max { // RC-45: before memory is asked for
		return fmt.Errorf("body of %d bytes", n)
	}
	fr.f.args = fr.f.args[:last]
	if uint64(cap(fr.body)) <= n {
		fr.body = make([]byte, n+1)
	}
	fr.body = fr.body[:n+1]
	m, err := io.ReadFull(fr.r, fr.body)
	fr.off += int64(m)
	fr.max -= int64(m)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	case err != nil:
		return fmt.Errorf("read: %w", err)
	case fr.body[n] != '\n':
		return errors.New("no newline behind a body")
	}
	fr.f.body = fr.body[:n]
	return nil
}

// atEnd reports whether the input has ended.
func (fr *frameReader) atEnd() bool {
	_, err := fr.r.Peek(1)
	return errors.Is(err, io.EOF)
}

// want checks the number of words behind the first.
func (f *frame) want(n int) error {
	if len(f.args) != n {
		return fmt.Errorf("%s with %d words", f.word, len(f.args)+1)
	}
	return nil
}

// parseNumber reads a decimal 0..2^53-1 in its only spelling.
func parseNumber(b []byte) (uint64, error) {
	if len(b) == 0 || len(b) > 16 || b[0] == '0' && len(b) > 1 {
		return 0, errors.New("malformed number")
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, errors.New("malformed number")
		}
		n = n*10 + uint64(c-'0')
	}
	if n > canon.MaxInt {
		return 0, errors.New("number above 2^53-1")
	}
	return n, nil
}

// appendPath reads what formatPath writes, behind path.
func appendPath(path []Hash, b []byte) ([]Hash, error) {
	if len(b) == 1 && b[0] == '-' {
		return path, nil
	}
	if len(b) > maxPath*(canon.DigestLen+1) { // RC-45
		return nil, errors.New("path too long")
	}
	for {
		if len(b) < canon.DigestLen {
			return nil, errors.New("malformed path")
		}
		h, err := canon.ParseDigest(b[:canon.DigestLen])
		if err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
		path = append(path, h)
		b = b[canon.DigestLen:]
		if len(b) == 0 {
			return path, nil
		}
		if b[0] != ',' {
			return nil, errors.New("malformed path")
		}
		b = b[1:]
	}
}
