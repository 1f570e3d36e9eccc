package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net/smtp"
	"strings"
	"time"

	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// mailbox is an address behind a mail server.
type mailbox struct {
	server   string // its name, for the log and its certificate
	from, to string
	username string
	password secret.Value
	exit     *upstream.Node
	now      func() time.Time
}

func (n *node) newMailbox(at string, c config.Notify, up *upstream.Client, dev bool) (receiver, error) {
	if c.From == "" || c.To == "" {
		return nil, problem.New(problem.ConfigInvalid, at+": smtp needs from and to", "")
	}
	if (c.Username == "") != c.Password.IsZero() {
		return nil, problem.New(problem.ConfigInvalid, at+": username and password go together", "")
	}
	// TLS from the first byte: a server that only offers it later can be made to
	// forget the offer by whoever stands between.
	to, err := authority.ParseHostHeader(authority.HTTPS, c.SMTP)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, at+": smtp is host:port", "")
	}
	exit, err := up.Node(upstream.NodeOptions{Purpose: "notify", To: to, Begin: n.begin("notify", "notify", to, dev)})
	if err != nil {
		return nil, err
	}
	return mailbox{server: to.Host(), from: c.From, to: c.To, username: c.Username, password: c.Password.Value(), exit: exit, now: time.Now}, nil
}

func (b mailbox) tell(ctx context.Context, m message) error {
	text, err := b.letter(m)
	if err != nil {
		return err
	}
	if err := b.send(ctx, text); err != nil {
		return fmt.Errorf("mail server %s: %w", b.server, err)
	}
	return nil
}

func (b mailbox) send(ctx context.Context, letter []byte) error {
	c, err := b.exit.Dial(ctx, "SMTP")
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := smtp.NewClient(c, b.server)
	if err != nil {
		return err
	}
	if b.username != "" {
		if err := s.Auth(login{b.username, b.password}); err != nil {
			return err
		}
	}
	if err := errors.Join(s.Mail(b.from), s.Rcpt(b.to)); err != nil {
		return err
	}
	w, err := s.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(letter); err != nil {
		return err
	}
	if err := w.Close(); err != nil { // here the server takes it, or does not
		return err
	}
	_ = s.Quit()
	return nil
}

// letter is the message as a mail: the sentence, and below it the same as the
// webhook gets. The refused host is a client's word: it stands in the body alone.
func (b mailbox) letter(m message) ([]byte, error) {
	whole, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, h := range [][2]string{
		{"From", b.from}, {"To", b.to}, {"Subject", mime.QEncoding.Encode("utf-8", "Gatehouse "+m.Node+": first refusal of "+m.Bundle)},
		{"Date", b.now().UTC().Format(time.RFC1123Z)}, {"Message-ID", "<" + m.Promotion[:min(len(m.Promotion), 32)] + "@" + domainOf(b.from) + ">"},
		{"Auto-Submitted", "auto-generated"}, {"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&out, "%s: %s\r\n", h[0], h[1])
	}
	out.WriteString("\r\n")
	q := quotedprintable.NewWriter(&out)
	if _, err := q.Write([]byte(m.Text + "\n\n" + string(whole) + "\n")); err != nil {
		return nil, err
	}
	return out.Bytes(), q.Close()
}

func domainOf(address string) string {
	_, domain, _ := strings.Cut(address, "@")
	return domain
}

// login is SASL PLAIN. The connection is TLS already, with a certificate that the
// node verified.
type login struct {
	username string
	password secret.Value
}

func (p login) Start(*smtp.ServerInfo) (string, []byte, error) {
	return "PLAIN", []byte("\x00" + p.username + "\x00" + string(p.password.Reveal())), nil
}

func (p login) Next(_ []byte, more bool) ([]byte, error) {
	if more {
		return nil, errors.New("the server asks for more than PLAIN has")
	}
	return nil, nil
}
