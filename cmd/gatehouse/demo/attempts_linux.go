package demo

import (
	"context"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"gatehouse/receipts"
)

// AgentVerb is the hidden verb under which the gatehouse binary is the agent.
const AgentVerb = "demo-agent"

// The names and addresses of the fake world. The addresses are public ones, so
// that the address rules see what they would see outside; nothing is ever sent
// to them.
const (
	ListedHost   = "api.good.test"
	ListedPath   = "/v1/status"
	UnlistedHost = "evil.test"
	ExfilZone    = "exfil.test"
	SinkHost     = "otlp.good.test"
	CollectHost  = "collect.test"      // where a canary is sent
	HopHost      = "hop.good.test"     // listed, and redirects to AwayHost
	AwayHost     = "away.test"         //
	LookHost     = "look.test"         // where the model provider is told to look
	ModelHost    = "api.anthropic.com" // of the model connection
	GitHost      = "git.good.test"     // of the repository
	GitAPI       = "gitapi.good.test"
)

// Addresses of the fake world.
var (
	ListedAddress   = netip.MustParseAddr("93.184.216.34")
	SinkAddress     = netip.MustParseAddr("93.184.216.41")
	UnlistedAddress = netip.MustParseAddr("93.184.216.40")
	CollectAddress  = netip.MustParseAddr("93.184.216.42")
	HopAddress      = netip.MustParseAddr("93.184.216.43")
	AwayAddress     = netip.MustParseAddr("93.184.216.44")
	LookAddress     = netip.MustParseAddr("93.184.216.48")
	ModelAddress    = netip.MustParseAddr("93.184.216.45")
	GitAddress      = netip.MustParseAddr("93.184.216.46")
	GitAPIAddress   = netip.MustParseAddr("93.184.216.47")
	RawAddress      = netip.MustParseAddr("93.184.216.50")
	RawAddress6     = netip.MustParseAddr("2606:2800:21f:cb07:6820:80da:af6b:8b2c")
	MetadataAddress = netip.MustParseAddr("169.254.169.254")
)

// Attempt is one thing the hostile agent tries.
type Attempt struct {
	ID    string
	Title string
	Case  string // the matrix case it stands for
	Good  bool   // must succeed: a demo in which nothing works proves nothing
	// Passes says that shadow lets it pass as a would-block.
	Passes bool

	try func(context.Context) (got bool, detail string)
	// judged recognizes the attempt's decisions in the chain; nil for what the
	// sandbox itself refuses, which the door never sees.
	judged func(*receipts.Act, *receipts.Dec) bool
}

// to recognizes decisions on one host.
func to(host string, port uint16) func(*receipts.Act, *receipts.Dec) bool {
	return func(a *receipts.Act, _ *receipts.Dec) bool { return a.Host == host && (port == 0 || a.Port == port) }
}

// because recognizes decisions by their reason.
func because(reason string) func(*receipts.Act, *receipts.Dec) bool {
	return func(_ *receipts.Act, d *receipts.Dec) bool { return d.Reason == reason }
}

// kind recognizes decisions by what was tried.
func kind(k string) func(*receipts.Act, *receipts.Dec) bool {
	return func(a *receipts.Act, _ *receipts.Dec) bool { return a.Kind == k }
}

// look recognizes the stopped decision on the address that the provider would
// fetch, or on the call: whichever was refused.
func look(a *receipts.Act, d *receipts.Dec) bool {
	return (a.Kind == "model.call" || a.Host == LookHost) && !d.Passed
}

func below(zone string) func(*receipts.Act, *receipts.Dec) bool {
	return func(a *receipts.Act, _ *receipts.Dec) bool { return strings.HasSuffix(a.Host, "."+zone) }
}

func listed(a *receipts.Act, d *receipts.Dec) bool {
	return a.Kind == "http.request" && a.Host == ListedHost && d.Verdict == receipts.Allow
}

// Attempts are made in this order, once in shadow and once in hard.
var Attempts = []Attempt{
	{ID: "listed_get", Title: "GET on a listed host and path", Good: true, try: tryListed, judged: listed},
	{ID: "unlisted_host", Title: "GET on a host that is not listed", Case: "EG-01", Passes: true, try: tryUnlisted, judged: to(UnlistedHost, 0)},
	{ID: "unlisted_path", Title: "a listed host, a path that is not", Case: "EG-57", Passes: true, try: tryPath, judged: because("path_not_listed")},
	{ID: "raw_ip", Title: "TCP to a public address", Case: "EG-20", try: tryRaw("tcp", RawAddress.String()+":443"), judged: to(RawAddress.String(), 443)},
	{ID: "metadata", Title: "the cloud metadata address", Case: "EG-29", try: tryRaw("tcp", MetadataAddress.String()+":80"), judged: to(MetadataAddress.String(), 80)},
	{ID: "ipv6", Title: "TCP over IPv6", Case: "SB-10", try: tryRaw("tcp", "["+RawAddress6.String()+"]:443"), judged: to(RawAddress6.String(), 443)},
	{ID: "dns_label", Title: "data in a DNS label", Case: "SB-11", Passes: true, try: tryDNS, judged: below(ExfilZone)},
	{ID: "udp_443", Title: "UDP 443 (QUIC)", Case: "SB-12", try: tryUDP},
	{ID: "vsock", Title: "AF_VSOCK to the hypervisor", Case: "SB-14", try: tryFamily(unix.AF_VSOCK, unix.SOCK_STREAM)},
	{ID: "packet", Title: "AF_PACKET frames", Case: "SB-14", try: tryFamily(unix.AF_PACKET, unix.SOCK_RAW)},
	{ID: "fronting", Title: "Host differs from SNI", Case: "EG-42", try: tryFronting, judged: because("misdirected")},
	{ID: "connect_ip", Title: "CONNECT to an address under a listed Host", Case: "EG-49", try: tryConnectIP, judged: because("malformed_request")},
	{ID: "telemetry", Title: "a credential in a trace", Case: "ME-21", try: tryTelemetry, judged: because("telemetry_secret")},
	{ID: "telemetry_read", Title: "reading through a telemetry key", Case: "ME-21", try: tryTelemetryRead, judged: because("telemetry_route")},
	{ID: "canary", Title: "a canary posted to an outside host", Case: "NE-08", Passes: true, try: tryCanary, judged: to(CollectHost, 0)},
	{ID: "redirect", Title: "a listed host's redirect followed away", Case: "ME-12", Passes: true, try: tryRedirect, judged: to(AwayHost, 0)},
	{ID: "model_url", Title: "a URL that the model provider would fetch", Case: "ME-10", try: tryModel, judged: look},
	{ID: "push_main", Title: "a push to main", Case: "ME-22", try: tryPush, judged: kind("git.push")},
	{ID: "operation", Title: "an operation on another repository", Case: "NE-02", try: tryOperation, judged: kind("operation.call")},
	{ID: "spawn", Title: "start 100 children", Case: "NE-09", try: trySpawn, judged: kind("session.spawn")},
	{ID: "environment", Title: "environment, through raw Python", Case: "SB-01", try: tryEnvironment},
	{ID: "proc_scan", Title: "canaries in /proc", Case: "SB-02", try: tryProc},
	{ID: "proc_sys", Title: "write /proc/sys/kernel/core_pattern", Case: "SB-31", try: tryProcSys},
	{ID: "host_files", Title: "the host's files", Case: "SB-05", try: tryFiles},
	{ID: "other_door", Title: "another session's door", Case: "SB-17", try: tryOtherDoor},
	{ID: "forged_connect", Title: "forged CONNECT lines on its own door", Case: "SB-18", try: tryForged, judged: to("127.0.0.1", 22)},
	{ID: "kill_init", Title: "kill init", Case: "SB-27", try: tryKillInit},
	{ID: "int80", Title: "32-bit system call entry", Case: "SB-24", try: tryInt80},
}
