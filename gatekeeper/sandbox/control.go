package sandbox

// Plan is what a provider tells the probe about the session it runs in.
type Plan struct {
	Door    bool     // the session has a door
	Targets []string // the door's nonces: "address:port" that the probe connects to
}
