package door

import (
	"bytes"
	"io"

	"gatehouse/enforcers"
)

// inspect reads as much of the request's body into its action as the enforcers
// ask for, before anything is decided or dialed. What is not whole, or in an
// encoding that cannot be undone, is not shown as if it were: the gate then
// denies it (body_not_inspectable).
//
// A client that waits for 100 Continue is asked for its body here, ahead of the
// decision; without the bytes there would be none (EG-53 holds for the rest).
func (r *Request) inspect(a *enforcers.Action) {
	if a.HTTP == nil || a.HTTP.Body.Mode != "head" || a.HardSet != "" {
		return
	}
	mode, most := r.Gate.Body()
	if mode == "" {
		return
	}
	src := r.Body
	raw, err := io.ReadAll(io.LimitReader(src, int64(most)+1))
	// What was read goes on with the rest; an error comes again from src.
	r.Body = &inspected{io.MultiReader(bytes.NewReader(raw), src), src}
	if err != nil {
		return
	}
	whole, plain := len(raw) <= most, raw
	switch codings := r.Header["Content-Encoding"]; {
	case len(codings) > 1, len(codings) == 1 && !whole:
		return
	case len(codings) == 1:
		if plain, err = unzip(raw, codings[0]); err != nil || len(plain) > most {
			return
		}
	}
	if a.HTTP.Body.Mode = enforcers.BodyPrefix; whole {
		a.HTTP.Body.Mode = enforcers.BodyWhole
	}
	a.HTTP.Body.Bytes = plain[:min(len(plain), most)]
}

// inspected is a body whose beginning was read already.
type inspected struct {
	io.Reader
	io.Closer
}
