package ingest

// InFlight is how many bodies are being read or kept.
func (in *Intake) InFlight() int {
	in.mem.mu.Lock()
	defer in.mem.mu.Unlock()
	return len(in.mem.holds)
}
