package door_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"testing"
)

// hello is a hand-made ClientHello, for what crypto/tls will not send.
type hello struct {
	names []string // host_name entries of one server_name extension
	extra []uint16 // empty extensions
}

func (h hello) bytes() []byte {
	var ext []byte
	extension := func(id uint16, body []byte) {
		ext = binary.BigEndian.AppendUint16(ext, id)
		ext = binary.BigEndian.AppendUint16(ext, uint16(len(body)))
		ext = append(ext, body...)
	}
	if h.names != nil {
		var list []byte
		for _, n := range h.names {
			list = append(list, 0)
			list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
			list = append(list, n...)
		}
		extension(0, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...))
	}
	extension(10, []byte{0, 2, 0, 29})      // supported_groups: x25519
	extension(13, []byte{0, 4, 4, 3, 8, 4}) // signature_algorithms
	extension(11, []byte{1, 0})             // ec_point_formats
	extension(43, []byte{4, 3, 4, 3, 3})    // supported_versions: 1.3, 1.2
	for _, id := range h.extra {
		extension(id, nil)
	}
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0)                            // session id
	body = append(body, 0, 4, 0xc0, 0x2b, 0x13, 0x01) // suites
	body = append(body, 1, 0)                         // compression
	body = binary.BigEndian.AppendUint16(body, uint16(len(ext)))
	body = append(body, ext...)
	msg := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{0x16, 3, 1, byte(len(msg) >> 8), byte(len(msg))}, msg...)
}

// echConfig is a configuration list for Encrypted Client Hello whose public
// name is given.
func echConfig(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := []byte{1}                               // config id
	c = binary.BigEndian.AppendUint16(c, 0x0020) // DHKEM(X25519)
	c = binary.BigEndian.AppendUint16(c, 32)
	c = append(c, key.PublicKey().Bytes()...)
	c = append(c, 0, 4, 0, 1, 0, 1) // HKDF-SHA256, AES-128-GCM
	c = append(c, 32, byte(len(public)))
	c = append(c, public...)
	c = append(c, 0, 0)
	config := binary.BigEndian.AppendUint16(nil, 0xfe0d)
	config = binary.BigEndian.AppendUint16(config, uint16(len(c)))
	config = append(config, c...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
