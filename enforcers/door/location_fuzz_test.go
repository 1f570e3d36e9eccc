package door

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
)

// FuzzLocation: EG-108. What is taken for an address that a door URL may lead to
// is the same one to net/url, and so to whoever would have followed it outside.
func FuzzLocation(f *testing.F) {
	for _, s := range []string{
		"https://a.test/x?sig=0123456789", "HTTPS://A.Test.:443//x/%7ey?a=b?c", "https://u@a.test/x?y", "https://a.test?x", "https://a.test#x", "https://[::1]/x?y",
		"https://1.2.3.4/x", "https://a.test\\@b.test/x", "//a.test/x?y", "/x?y", "/../x", "https:/a.test/x", "https://a.test:0443/x", "https://gatehouse.internal/x?y", "https://a.test/%2f?x", "https://a.test/x?%zz#",
	} {
		f.Add(s)
	}
	d := &Door{gate: enforcers.NewGate(enforcers.GateOptions{Session: "s"})}
	base, err := authority.New(authority.HTTPS, "base.test", 443)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, location string) {
		for _, on := range []authority.Authority{{}, base} {
			to, path, query, ok := d.address(location, on)
			if !ok {
				continue
			}
			u, err := url.Parse(location)
			if err != nil {
				t.Fatalf("%q: %v", location, err)
			}
			if u.Host == "" && !on.IsZero() {
				u, err = url.Parse("https://" + on.HostHeader() + location)
				if err != nil {
					t.Fatalf("%q: %v", location, err)
				}
			}
			port := u.Port()
			if port == "" {
				port = "443"
			}
			if u.Scheme != "https" && (u.Scheme != "" || on.IsZero()) || u.User != nil || u.Fragment != "" || u.Opaque != "" || u.RawQuery != query ||
				strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") != to.Host() || port != strconv.Itoa(int(to.Port())) {
				t.Fatalf("%q is %s %q %q here and %+v there", location, to, path, query, u)
			}
			there := "/" + strings.TrimLeft(u.Path, "/")
			for strings.Contains(there, "//") {
				there = strings.ReplaceAll(there, "//", "/")
			}
			if plain, err := url.PathUnescape(path); err != nil || plain != there {
				t.Fatalf("%q has the path %q here and %q there: %v", location, path, u.Path, err)
			}
			if to.IsIP() || to.Host() == Reserved || !visible(path) || !visible(query) && query != "" {
				t.Fatalf("%q was taken", location)
			}
		}
	})
}
