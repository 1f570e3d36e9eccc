package receipts

import "time"

// judgePeriod compares the sessions that the log opened in the asked period with
// those in the file. The log's own count comes from two manifests: the last one
// before the period and the first one behind it.
func (v *verifier) judgePeriod() {
	if v.o.Since.IsZero() && v.o.Until.IsZero() || v.man == nil {
		return
	}
	marks := append(v.marks, mark{v.cp.Size - 1, v.man, v.manAt})
	from, to := mark{man: &ManifestDoc{}}, marks[len(marks)-1]
	for _, m := range marks {
		if !v.o.Since.IsZero() && !m.t.After(v.o.Since) {
			from = m
		}
	}
	for i := len(marks) - 1; i >= 0 && !v.o.Until.IsZero(); i-- {
		if !marks[i].t.Before(v.o.Until) {
			to = marks[i]
		}
	}
	p := &Period{Found: [2]time.Time{from.t, to.t}}
	if !v.o.Since.IsZero() {
		p.Asked[0] = &v.o.Since
	}
	if !v.o.Until.IsZero() {
		p.Asked[1] = &v.o.Until
	}
	if to.man.Sessions > from.man.Sessions {
		p.Opened = to.man.Sessions - from.man.Sessions
	}
	for _, c := range v.order {
		if i := c.opened; i > 0 && i > from.man.Size && i <= to.man.Size {
			p.InFile++
		}
	}
	v.res.Period = p
}
