package gatekeeper

import "gatehouse/gatekeeper/bundle"

// checkoutScript clones the session's repository into the workspace and then
// becomes the agent. It runs inside, like everything of the agent: the clone
// goes through the door and is judged there.
const checkoutScript = `test -n "$GATEHOUSE_REPOSITORY" || { echo "gatehouse: no connection has the session's repository" >&2; exit 78; }
git clone -q -- "$GATEHOUSE_REPOSITORY" . || { echo "gatehouse: couldn't check out $GATEHOUSE_REPOSITORY" >&2; exit 74; }
exec "$@"`

// checkedOut puts the checkout before the agent when the bundle asks for it.
func checkedOut(b *bundle.Bundle, argv []string) []string {
	if !b.Session.Workspace.Checkout {
		return argv
	}
	return append([]string{"/bin/sh", "-c", checkoutScript, "checkout"}, argv...)
}
