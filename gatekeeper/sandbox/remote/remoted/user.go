package remoted

import (
	"errors"
	"fmt"
	"strings"
)

// parseUser reads the one user of a /proc/<pid>/status.
func parseUser(status string) (uint32, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		var real, effective, saved, files uint32
		if _, err := fmt.Sscan(rest, &real, &effective, &saved, &files); err != nil {
			return 0, fmt.Errorf("status: %w", err)
		}
		if real != effective || real != saved || real != files {
			return 0, errors.New("a process of several users")
		}
		return real, nil
	}
	return 0, errors.New("status without a user")
}
