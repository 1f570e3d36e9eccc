//go:build wasip1

// Command flow goes through every kind of jump that the rewriter of jumps must
// keep: loops in loops, labels, switches, calls that unwind and are resumed in the
// middle of a loop, stacks that grow, panics that are recovered.
package main

import "runtime"

func main() {}

//go:wasmexport run
func run(seed int64) int64 {
	h := uint64(seed)
	for i, f := range []func(uint64) uint64{search, labels, switches, resumed, indirect, deep, recovered, waits} {
		h = h*31 + f(h) + uint64(i)
	}
	return int64(h)
}

func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>29
}

func search(h uint64) (n uint64) {
	var b [64]byte
	for i := range b {
		h = mix(h)
		b[i] = byte(h) % 5
	}
	for i := 0; i < len(b); {
		j := i
		for j < len(b) && b[j] == b[i] {
			j++
		}
		if j-i > 1 {
			n += uint64(j - i)
		}
		for k := j; k < len(b) && b[k] != 0; k++ {
			if b[k] == 3 {
				n ^= uint64(k)
				continue
			}
			n++
		}
		i = j
	}
	return n
}

func labels(h uint64) (n uint64) {
outer:
	for i := uint64(0); i < 40; i++ {
		for j := uint64(0); ; j++ {
			h = mix(h + i)
			switch {
			case h%7 == 0:
				continue outer
			case h%11 == 0:
				break outer
			case j > 6:
				goto next
			}
			n += h % 13
		}
	next:
		n = n*3 + i
	}
	return n
}

func switches(h uint64) (n uint64) {
	for range 50 {
		h = mix(h)
		switch h % 9 {
		case 0, 3:
			n++
			fallthrough
		case 1:
			n += 2
		case 5:
			if h&1 == 0 {
				continue
			}
			n ^= h
		case 7:
			for h%2 == 0 && h > 0 {
				h >>= 1
				n++
			}
		default:
			n--
		}
	}
	return n
}

// resumed is unwound and resumed in the inner of three loops, and behind it.
func resumed(h uint64) (n uint64) {
	ticks := make(chan uint64)
	go produce(ticks, h)
	for i := range uint64(3) {
		for j := uint64(0); j < 4; j++ {
			n += <-ticks
			for n%5 != j%5 {
				runtime.Gosched()
				n++
			}
		}
		if i == 1 {
			runtime.Gosched()
		}
	}
	for range ticks {
		n++
	}
	return n
}

func produce(to chan<- uint64, h uint64) {
	for h = mix(h); h%16 != 0; h = mix(h) {
		to <- h % 100
		if h%3 == 0 {
			runtime.Gosched()
		}
	}
	for i := range uint64(12) {
		to <- i
	}
	close(to)
}

type stepper interface{ step(n uint64) uint64 }

type adds uint64

func (a adds) step(n uint64) uint64 { return n + uint64(a) }

type yields struct{ times int }

func (y yields) step(n uint64) uint64 {
	for range y.times {
		runtime.Gosched()
	}
	return n * 3
}

// indirect calls through a table in a loop, and some of what it calls unwinds.
func indirect(h uint64) (n uint64) {
	all := []stepper{adds(h), yields{2}, adds(7), yields{0}}
	for i := range uint64(20) {
		h = mix(h)
		n = all[h%4].step(n + i)
		if n%3 == 0 {
			continue
		}
		n = all[n%4].step(n)
	}
	return n
}

func deep(h uint64) uint64 { return down(h, 300+int(h%100)) }

func down(h uint64, n int) uint64 {
	var room [64]uint64
	for i := range room {
		room[i] = mix(h + uint64(i))
	}
	if n == 0 {
		return room[h%64]
	}
	turn := h % 2
	for i := range uint64(2) {
		if i == turn {
			h += down(room[h%64], n-1)
		}
	}
	return h ^ room[3]
}

func recovered(h uint64) (n uint64) {
	for i := range uint64(6) {
		n += try(h + i)
	}
	return n
}

func try(h uint64) (n uint64) {
	defer func() {
		if recover() != nil {
			n = 1000
		}
	}()
	return pick(make([]uint64, h%5), h)
}

// pick panics in a loop, out of range or by division.
func pick(b []uint64, h uint64) (n uint64) {
	for i := uint64(0); i < 4; i++ {
		n += b[(h+i)%5]
		n += h / (h % 4)
	}
	return n
}

func waits(h uint64) (n uint64) {
	a, b, done := make(chan uint64), make(chan uint64), make(chan bool)
	go func() {
		for i := range h%7 + 1 {
			if a <- i; i%2 == 0 {
				b <- i * 10
			}
		}
		close(done)
	}()
	for {
		select {
		case x := <-a:
			n += x
		case x := <-b:
			n ^= x
		case <-done:
			return n
		}
	}
}
