package git

import "strconv"

// Inside is what the real git inside a sandbox is told: where the session's
// hosts are when a remote is written for ssh or git://, who commits, and a
// credential helper that answers a placeholder to what insists on a credential.
// Any other git:// address becomes https too, so that what refuses it can say why;
// and where git would run ssh, which cannot get out, it prints what to use (EG-84).
// Everything in it may be read by the agent. The keys are environment
// variables: git(1), GIT_CONFIG_COUNT.
func (m *Mediator) Inside() map[string]string {
	var pairs [][2]string
	set := func(key, value string) { pairs = append(pairs, [2]string{key, value}) }
	set("user.name", "Gatehouse")
	set("user.email", "agent@gatehouse.internal")
	set("safe.directory", "*") // the workspace belongs to this one session
	set("advice.detachedHead", "false")
	set("url.https://.insteadOf", "git://")
	set("core.sshCommand", `f() { echo "Gatehouse: ssh does not pass; use the repository's https address" >&2; exit 1; }; f`)
	set("ssh.variant", "ssh") // or git would ask it what it is first
	for _, h := range m.o.Hosts {
		host := h.To.HostHeader()
		base := "https://" + host + "/"
		for _, other := range []string{"git@" + h.To.Host() + ":", "ssh://git@" + h.To.Host() + "/", "git://" + host + "/", "http://" + host + "/"} {
			set("url."+base+".insteadOf", other)
		}
		if !m.o.Placeholder.Empty() {
			set("credential."+base+".helper", helper(string(m.o.Placeholder.Reveal())))
		}
	}
	env := map[string]string{"GIT_CONFIG_COUNT": strconv.Itoa(len(pairs)), "GIT_TERMINAL_PROMPT": "0"}
	for i, p := range pairs {
		n := strconv.Itoa(i)
		env["GIT_CONFIG_KEY_"+n], env["GIT_CONFIG_VALUE_"+n] = p[0], p[1]
	}
	return env
}

// helper is a credential helper as git runs it: only get is answered.
func helper(placeholder string) string {
	return `!f() { test "$1" = get && printf 'username=x-access-token\npassword=` + placeholder + `\n'; }; f`
}
