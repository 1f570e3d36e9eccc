package receipts

import "bytes"

// MayBe reports whether a payload can be a receipt of one of the types, without
// decoding it: false is certain, since a receipt's type stands in its payload in
// one spelling. True is not: the same words may stand among its facts. It is for
// folds that read few of very many receipts, and decode what may be theirs.
func MayBe(payload []byte, types ...Type) bool {
	const key = `"type":"`
	for {
		at := bytes.Index(payload, []byte(key))
		if at < 0 {
			return false
		}
		payload = payload[at+len(key):]
		for _, t := range types {
			if len(payload) > len(t) && payload[len(t)] == '"' && string(payload[:len(t)]) == string(t) {
				return true
			}
		}
	}
}
