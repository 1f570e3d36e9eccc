package door

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// TestMentions: EG-74. A placeholder is found however it is written, in a head as
// in a body, and what merely looks escaped is none.
func TestMentions(t *testing.T) {
	token := placeholderPrefix + strings.Repeat("A", 26)
	percent, unicode := "", ""
	for _, c := range []byte(token) {
		percent += fmt.Sprintf("%%%02x", c)
		unicode += fmt.Sprintf(`\u00%02X`, c)
	}
	for s, want := range map[string]bool{
		token: true, "Bearer " + token + " and more": true, "x" + percent: true, `{"a":"` + unicode + `"}`: true,
		token[:5] + percent[15:]: true, token[:5] + unicode[30:]: true,
		base64.StdEncoding.EncodeToString([]byte("user:" + token)): true, base64.StdEncoding.EncodeToString([]byte("user1:" + token)): true,
		base64.StdEncoding.EncodeToString([]byte("user12:" + token)): true,
		"": false, "/": false, "%": false, `\`: false, "/a%2Fb%": false, `\u00`: false, token[:len(placeholderPrefix)-1]: false, "gatehouse%5": false,
	} {
		if body, head := mentions([]byte(s)), mentionsText(s); body != want || head != want {
			t.Errorf("%q: in a body %t, in a head %t, want %t", s, body, head, want)
		}
	}
}
