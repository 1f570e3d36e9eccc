package bundle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gatehouse/internal/problem"
)

// Duration is a length of time written as 45m, 36h or 7d.
type Duration time.Duration

// UnmarshalText reads a positive duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := parseDuration(string(b))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

func parseDuration(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 12)
		v = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || v <= 0 {
		return 0, invalid(fmt.Sprintf("%q is not a duration", s), "write 45m, 36h or 7d")
	}
	return v, nil
}

// String returns the canonical form, which UnmarshalText reads back.
func (d Duration) String() string { return time.Duration(d).String() }

// Size is a number of bytes, written as 10GiB, 512MiB, 64KiB or plain bytes.
type Size int64

var units = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// UnmarshalText reads a positive size.
func (s *Size) UnmarshalText(b []byte) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(string(b), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/u.bytes {
			break
		}
		*s = Size(n * u.bytes)
		return nil
	}
	return invalid(fmt.Sprintf("%q is not a size", b), "write 10GiB, 512MiB, 64KiB or a number of bytes")
}

// String returns the largest whole unit.
func (s Size) String() string {
	for _, u := range units {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Money is an amount in nanodollars, written as "5.00 USD".
type Money int64

const nano = 1_000_000_000

// UnmarshalText reads a positive amount with at most nine decimals.
func (m *Money) UnmarshalText(b []byte) error {
	bad := invalid(fmt.Sprintf("%q is not an amount", b), `write "5.00 USD"`)
	digits, ok := strings.CutSuffix(string(b), " USD")
	if !ok {
		return bad
	}
	whole, frac, _ := strings.Cut(digits, ".")
	if len(frac) > 9 || strings.Trim(whole+frac, "0123456789") != "" || whole == "" {
		return bad
	}
	w, err := strconv.ParseInt(whole, 10, 64)
	f, _ := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
	if err != nil || w > (math.MaxInt64-f)/nano || w*nano+f == 0 {
		return bad
	}
	*m = Money(w*nano + f)
	return nil
}

// String returns the amount with at least two decimals.
func (m Money) String() string {
	frac := strings.TrimRight(fmt.Sprintf("%09d", int64(m)%nano), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return fmt.Sprintf("%d.%s USD", int64(m)/nano, frac)
}

// Rate is at most N in Per, written as 3/24h.
type Rate struct {
	N   int
	Per time.Duration
}

// UnmarshalText reads N/DURATION.
func (r *Rate) UnmarshalText(b []byte) error {
	n, per, ok := strings.Cut(string(b), "/")
	v, err := strconv.ParseUint(n, 10, 16)
	d, derr := parseDuration(per)
	if !ok || err != nil || derr != nil || v == 0 || d > maxWindow {
		return invalid(fmt.Sprintf("%q is not a rate", b), "write 3/24h: a number from 1, and a time of at most 30d")
	}
	r.N, r.Per = int(v), d
	return nil
}

// String returns the canonical form.
func (r Rate) String() string { return fmt.Sprintf("%d/%s", r.N, r.Per) }

// covers reports whether whatever stays within o stays within r.
func (r Rate) covers(o Rate) bool { return o.N <= r.N && o.Per >= r.Per }

// Day is the moment an exception ends.
type Day struct{ time.Time }

// UnmarshalText reads a date, which lasts to its end in UTC, or an RFC 3339 time.
func (d *Day) UnmarshalText(b []byte) error {
	if t, err := time.Parse(time.DateOnly, string(b)); err == nil {
		d.Time = t.AddDate(0, 0, 1)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(b))
	if err != nil {
		return invalid(fmt.Sprintf("%q is not a date", b), "write 2027-01-31 or 2027-01-31T12:00:00Z")
	}
	d.Time = t.UTC()
	return nil
}

// String returns the RFC 3339 form.
func (d Day) String() string { return d.UTC().Format(time.RFC3339) }

// over reports whether the exception has ended, a nil one always.
func (e *Exception) over(now time.Time) bool { return e == nil || !now.Before(e.Expires.Time) }

// covers reports whether e allows the weaker setting for as long as o.
func (e *Exception) covers(o *Exception) bool {
	return o == nil || e != nil && !o.Expires.After(e.Expires.Time)
}

func invalid(msg, hint string) *problem.Error {
	return problem.New(problem.ConfigInvalid, msg, hint)
}
