package door

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// handshake reports whether r asks for a WebSocket in the one way that RFC 6455
// allows. It takes the offered extensions out: frames stay readable.
func handshake(r *Request) bool {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key"))
	connection := strings.ToLower(strings.Join(r.Header["Connection"], ","))
	delete(r.Header, "Sec-Websocket-Extensions")
	return r.Upgrade == "websocket" && r.link != nil && r.Method == http.MethodGet && r.ContentLength == 0 &&
		err == nil && len(key) == 16 && len(r.Header["Sec-Websocket-Key"]) == 1 &&
		r.Header.Get("Sec-Websocket-Version") == "13" && strings.Contains(connection, "upgrade")
}

// accepted is what a server must answer to a key: it shows that it speaks the
// protocol and did not merely repeat the request.
func accepted(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455 section 1.3
	return base64.StdEncoding.EncodeToString(sum[:])
}

// websocket relays a WebSocket both ways, frame by frame. A switch that the
// server did not make properly relays nothing (EG-63).
func (d *Door) websocket(w http.ResponseWriter, r *Request, resp *http.Response, decision enforcers.Decision) {
	defer resp.Body.Close()
	up, ok := resp.Body.(io.ReadWriteCloser)
	out, ok2 := w.(*reply)
	if !ok || !ok2 || resp.Header.Get("Sec-Websocket-Accept") != accepted(r.Header.Get("Sec-Websocket-Key")) ||
		!strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") || len(resp.Header["Sec-Websocket-Extensions"]) > 0 {
		Fail(w, decision, problem.New(enforcers.CodeProtocol, "the upstream's protocol switch is not a WebSocket's", ""))
		return
	}
	r.body.finished()
	maps.Copy(out.Header(), resp.Header)
	if out.switched() != nil {
		return
	}
	_ = r.link.nc.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if frames(up, r.link.r, true) != nil { // after a close frame the server still has its say
			_ = up.Close()
		}
	})
	_ = frames(r.link.nc, bufio.NewReader(up), false)
	_ = r.link.nc.Close()
	wg.Wait()
}

const (
	opClose        = 8
	maxControl     = 125
	frameBitFin    = 0x80
	frameBitsRSV   = 0x70
	frameBitMask   = 0x80
	frameOpcode    = 0x0f
	frameLength    = 0x7f
	frameLength16  = 126
	frameLength64  = 127
	firstControlOp = 8
)

// frames copies WebSocket frames until the peer closes, the connection ends or
// something is no frame.
func frames(dst io.Writer, src *bufio.Reader, masked bool) error {
	buf := make([]byte, 4<<10)
	for {
		head := make([]byte, 2, 14)
		if _, err := io.ReadFull(src, head); err != nil {
			return err
		}
		op := head[0] & frameOpcode
		control := op >= firstControlOp
		known := op <= 2 || (op >= opClose && op <= 10)
		n := uint64(head[1] & frameLength)
		if !known || head[0]&frameBitsRSV != 0 || (head[1]&frameBitMask != 0) != masked ||
			(control && (n > maxControl || head[0]&frameBitFin == 0)) {
			return malformed("frame")
		}
		more := 0
		switch n {
		case frameLength16:
			more = 2
		case frameLength64:
			more = 8
		}
		if masked {
			more += 4
		}
		head = head[:2+more]
		if _, err := io.ReadFull(src, head[2:]); err != nil {
			return err
		}
		switch n {
		case frameLength16:
			n = uint64(binary.BigEndian.Uint16(head[2:]))
		case frameLength64:
			if n = binary.BigEndian.Uint64(head[2:]); n>>63 != 0 {
				return malformed("frame")
			}
		}
		if _, err := dst.Write(head); err != nil {
			return err
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, io.LimitReader(src, int64(n)), buf); err != nil {
			return err
		}
		if op == opClose {
			return nil
		}
	}
}
