package netguard

import "strings"

// Names of cloud metadata services. They are refused before any resolution,
// even when a rule lists them (EG-30).
var metadataNames = map[string]bool{
	"instance-data":                        true,
	"instance-data.ec2.internal":           true,
	"metadata":                             true,
	"metadata.google.internal":             true,
	"metadata.goog":                        true,
	"metadata.azure.internal":              true,
	"metadata.azure.com":                   true,
	"metadata.platformequinix.com":         true,
	"metadata.packet.net":                  true,
	"metadata.tencentyun.com":              true,
	"metadata.oraclecloud.com":             true,
	"rancher-metadata":                     true,
	"kubernetes":                           true,
	"kubernetes.default":                   true,
	"kubernetes.default.svc":               true,
	"kubernetes.default.svc.cluster.local": true,
}

// Top-level names that mean this host or this link: RFC 6761, 6762, 7686.
var specialTLDs = map[string]bool{
	"localhost":   true,
	"localdomain": true,
	"local":       true,
	"onion":       true,
	"arpa":        true,
}

// Name judges a canonical host before any resolution: ok is false for
// localhost, link-local names and metadata services. An IP literal and the
// empty host are not names and pass here.
func Name(host string) (Class, bool) {
	if metadataNames[host] {
		return Metadata, false
	}
	if specialTLDs[host[strings.LastIndexByte(host, '.')+1:]] {
		return Special, false
	}
	return Public, true
}

// Domains whose only use from a build is to carry data somewhere else: paste
// and drop sites, tunnels back into a network, and out-of-band interaction
// services. They stay closed in shadow unless a rule lists them.
var relayDomains = map[string]bool{
	// paste and drop
	"0x0.st": true, "anonfiles.com": true, "bashupload.com": true, "catbox.moe": true,
	"controlc.com": true, "dpaste.com": true, "dpaste.org": true, "file.io": true,
	"gofile.io": true, "hastebin.com": true, "ix.io": true, "justpaste.it": true,
	"litterbox.catbox.moe": true, "paste.ee": true, "paste.rs": true, "pastebin.com": true,
	"pastebin.pl": true, "pastes.io": true, "paste2.org": true, "privatebin.net": true,
	"rentry.co": true, "rentry.org": true, "sprunge.us": true, "temp.sh": true,
	"termbin.com": true, "tmpfiles.org": true, "transfer.sh": true, "uguu.se": true,
	"wetransfer.com": true,
	// tunnels
	"bore.pub": true, "localhost.run": true, "loca.lt": true, "localtunnel.me": true,
	"localto.net": true, "lhr.life": true, "ngrok.app": true, "ngrok.dev": true,
	"ngrok-free.app": true, "ngrok-free.dev": true, "ngrok.io": true, "pagekite.me": true,
	"pinggy.link": true, "playit.gg": true, "serveo.net": true, "serveousercontent.com": true,
	"trycloudflare.com": true, "tunnelmole.net": true, "zrok.io": true,
	// out-of-band interaction and request catchers
	"beeceptor.com": true, "burpcollaborator.net": true, "canarytokens.com": true,
	"ceye.io": true, "dnslog.cn": true, "hookbin.com": true, "interact.sh": true,
	"mockbin.org": true, "oast.fun": true, "oast.live": true, "oast.me": true,
	"oast.online": true, "oast.pro": true, "oast.site": true, "oastify.com": true,
	"pipedream.net": true, "ptsv2.com": true, "requestbin.com": true, "requestbin.net": true,
	"requestcatcher.com": true, "webhook.site": true, "webhook.cool": true,
}

// Relay reports whether host is, or lies under, a paste, tunnel or
// out-of-band interaction domain.
func Relay(host string) bool {
	for {
		if relayDomains[host] {
			return true
		}
		_, parent, ok := strings.Cut(host, ".")
		if !ok {
			return false
		}
		host = parent
	}
}
