package meter

// Refusal says why a module is not accepted. Why is a fixed sentence, except
// that it may quote the name of an import or export.
type Refusal struct{ Why string }

// Error returns Why.
func (r *Refusal) Error() string { return r.Why }

func refuse(why string) error { return &Refusal{why} }

// reader walks bytes. The first thing out of place is kept in err; after it
// every method returns zero values, so callers check where it matters.
type reader struct {
	b   []byte
	i   int
	err error
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = refuse(why)
		r.i = len(r.b)
	}
}

func (r *reader) more() bool { return r.err == nil && r.i < len(r.b) }

func (r *reader) byte() byte {
	if r.i >= len(r.b) {
		r.fail("the module ends too early") // WA-27
		return 0
	}
	x := r.b[r.i]
	r.i++
	return x
}

func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)-r.i) {
		r.fail("the module ends too early")
		return nil
	}
	b := r.b[r.i : r.i+int(n)]
	r.i += int(n)
	return b
}

// u32 reads an unsigned LEB128. Padding is legal up to five bytes, bits past
// the 32nd are not (WA-28).
func (r *reader) u32() uint32 {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		x := r.byte()
		if shift == 28 && x > 0x0f {
			break
		}
		v |= uint32(x&0x7f) << shift
		if x < 0x80 {
			return v
		}
	}
	r.fail("an integer is encoded with too many bits")
	return 0
}

// signed reads a signed LEB128 of the given width in bits (32, 33 or 64).
func (r *reader) signed(bits int) int64 {
	var v int64
	last := (bits+6)/7*7 - 7 // shift of the last byte allowed
	for shift := 0; shift <= last; shift += 7 {
		x := r.byte()
		v |= int64(x&0x7f) << shift
		if x < 0x80 {
			if shift+7 < 64 && x&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			if bits < 64 && (v < -1<<(bits-1) || v >= 1<<(bits-1)) {
				break
			}
			if bits == 64 && shift == last && x != 0 && x != 0x7f {
				break
			}
			return v
		}
	}
	r.fail("an integer is encoded with too many bits")
	return 0
}

// name reads a length-prefixed name.
func (r *reader) name() string { return string(r.bytes(r.u32())) }

// count reads the length of a vector and holds it to limit.
func (r *reader) count(limit uint32, why string) uint32 {
	n := r.u32()
	if n > limit {
		r.fail(why)
		return 0
	}
	return n
}

// appendU32 appends an unsigned LEB128.
func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// appendS64 appends a signed LEB128.
func appendS64(b []byte, v int64) []byte {
	for {
		x := byte(v & 0x7f)
		v >>= 7
		if v == 0 && x&0x40 == 0 || v == -1 && x&0x40 != 0 {
			return append(b, x)
		}
		b = append(b, x|0x80)
	}
}
