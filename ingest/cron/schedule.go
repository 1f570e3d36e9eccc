package cron

import (
	"fmt"
	"strings"
	"time"

	parser "github.com/netresearch/go-cron"

	"gatehouse/internal/problem"
)

// Schedule is one parsed expression in one zone.
type Schedule struct {
	wall parser.Schedule // works on wall-clock times written as UTC
	zone *time.Location
}

// Parse reads a five-field expression, or @hourly to @yearly, in an IANA zone
// ("" is UTC). A zone inside the expression, an interval and an expression that
// no date satisfies are errors (IN-29).
func Parse(expr, zone string) (*Schedule, error) {
	bad := func(msg string) error {
		return problem.New(problem.ConfigInvalid, fmt.Sprintf("schedule %q %s", expr, msg), `Write five fields, for example "0 3 * * *", and the zone in zone.`)
	}
	if zone == "Local" {
		return nil, bad("has the zone Local, which differs from machine to machine")
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, bad("has an unknown zone")
	}
	if strings.Contains(expr, "=") || strings.HasPrefix(strings.TrimSpace(expr), "@every") {
		return nil, bad("holds a zone or an interval")
	}
	wall, err := parse(expr)
	if err != nil {
		return nil, bad("cannot be read")
	}
	s := &Schedule{wall: wall, zone: loc}
	if s.wall.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, bad("never comes")
	}
	return s, nil
}

// parse keeps a parser's panic from becoming the node's.
func parse(expr string) (s parser.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("parse schedule: %v", r)
		}
	}()
	// crontab's rule for a day of month and a day of week together is "either".
	p, err := parser.TryNewParser(parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow | parser.Descriptor | parser.DowOrDom)
	if err != nil {
		return nil, err
	}
	return p.WithMaxSearchYears(10).Parse(expr)
}

// Next returns the first instant after t at which the schedule runs, in its
// zone. The zero time means never.
func (s *Schedule) Next(t time.Time) time.Time {
	l := t.In(s.zone)
	wall := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	for {
		if wall = s.wall.Next(wall); wall.IsZero() {
			return wall
		}
		// Slots that fall into a gap share an instant, and the second pass of an
		// overlap maps to instants that are gone: only later ones count.
		if at := s.instant(wall); at.After(t) {
			return at
		}
	}
}

// instant maps a wall-clock time to the instant at which its slot runs.
func (s *Schedule) instant(wall time.Time) time.Time {
	// The offsets in force well before and after the slot; no zone changes twice
	// within two days.
	_, before := wall.Add(-36 * time.Hour).In(s.zone).Zone()
	_, after := wall.Add(36 * time.Hour).In(s.zone).Zone()
	first := wall.Add(-time.Duration(max(before, after)) * time.Second)
	for _, offset := range []int{max(before, after), min(before, after)} {
		at := wall.Add(-time.Duration(offset) * time.Second).In(s.zone)
		if same(at, wall) {
			return at // an overlap: the larger offset is the earlier instant
		}
	}
	// A gap: the wall clock jumps over the slot between the two candidates.
	if _, end := first.In(s.zone).ZoneBounds(); !end.IsZero() {
		return end.In(s.zone)
	}
	return first.In(s.zone)
}

func same(at, wall time.Time) bool {
	return at.Year() == wall.Year() && at.YearDay() == wall.YearDay() && at.Hour() == wall.Hour() && at.Minute() == wall.Minute()
}
