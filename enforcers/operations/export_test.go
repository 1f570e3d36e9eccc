package operations

import "time"

// SetClock gives a desk another clock.
func SetClock(d *Desk, clock func() time.Time) { d.clock = clock }
