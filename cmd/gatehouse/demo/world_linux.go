package demo

import (
	"io"
	"net/http"

	"gatehouse/internal/outside"
)

// World is the fake outside of the demo: what each attempt would reach.
type World struct {
	*outside.World
	sites map[string]*outside.Site // attempt id -> the site it aims at
}

// NewWorld starts the fakes.
func NewWorld() (*World, error) {
	base, err := outside.New()
	if err != nil {
		return nil, err
	}
	w := &World{World: base, sites: map[string]*outside.Site{}}
	if err := w.open(); err != nil {
		base.Close()
		return nil, err
	}
	return w, nil
}

func (w *World) open() error {
	ok := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "hello from outside\n") })
	listed, err := w.HTTPS(ListedHost, ListedAddress, ok)
	if err != nil {
		return err
	}
	unlisted, err := w.HTTPS(UnlistedHost, UnlistedAddress, ok)
	if err != nil {
		return err
	}
	raw, err := w.Sink(RawAddress, 443)
	if err != nil {
		return err
	}
	raw6, err := w.Sink(RawAddress6, 443)
	if err != nil {
		return err
	}
	metadata, err := w.Sink(MetadataAddress, 80)
	if err != nil {
		return err
	}
	w.sites = map[string]*outside.Site{
		"listed_get": listed, "unlisted_path": listed, "fronting": unlisted, "unlisted_host": unlisted,
		"raw_ip": raw, "connect_ip": raw, "forged_connect": raw, "udp_443": raw, "ipv6": raw6, "metadata": metadata,
	}
	return nil
}

// Reach is what has arrived outside so far.
type Reach struct {
	Bytes    map[string]int64 // by public host or address
	Requests int64            // at the listed host
	Queries  int              // DNS, below ExfilZone
}

// Reached reads every counter.
func (w *World) Reached() Reach {
	return Reach{
		Bytes: map[string]int64{
			ListedHost: w.sites["listed_get"].Bytes(), UnlistedHost: w.sites["unlisted_host"].Bytes(),
			RawAddress.String(): w.sites["raw_ip"].Bytes(), RawAddress6.String(): w.sites["ipv6"].Bytes(), MetadataAddress.String(): w.sites["metadata"].Bytes(),
		},
		Requests: w.sites["listed_get"].Requests(),
		Queries:  w.DNS.QueriesUnder(ExfilZone),
	}
}
