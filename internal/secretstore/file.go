package secretstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// format is the version of what is inside the encrypted file.
const format = 1

// maxFile bounds what is read: every secret at its largest, in base64.
const maxFile = 2 * MaxSecrets * MaxValue

// contents is the plain form of the file.
type contents struct {
	Format  int             `json:"format"`
	Secrets map[string]kept `json:"secrets"`
}

type kept struct {
	Value []byte    `json:"value"`
	Set   time.Time `json:"set"`
}

// File is a Store in one age file. Every change writes the whole file anew and
// renames it into place, under a lock that other processes see.
type File struct {
	path     string
	identity *age.X25519Identity
	clock    func() time.Time
}

// NewIdentity returns a new identity in age's own form, for the owner to keep.
func NewIdentity() (secret.Value, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return secret.Value{}, fmt.Errorf("couldn't make an identity: %w", err)
	}
	return secret.FromString(id.String()), nil
}

// Open returns the store in the file at path, which need not exist yet. A file
// that this identity cannot read, or that others may read, is an error with
// code config_invalid.
func Open(path string, identity secret.Value) (*File, error) {
	id, err := age.ParseX25519Identity(strings.TrimSpace(string(identity.Reveal())))
	if err != nil {
		// The cause may quote the key.
		return nil, problem.New(problem.ConfigInvalid, "the identity of the secret store is malformed", "it is one line that begins with AGE-SECRET-KEY-1")
	}
	f := &File{path: path, identity: id, clock: time.Now}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Get returns a secret.
func (f *File) Get(_ context.Context, name string) (secret.Value, error) {
	if err := CheckName(name); err != nil {
		return secret.Value{}, err
	}
	c, err := f.read()
	if err != nil {
		return secret.Value{}, err
	}
	k, ok := c.Secrets[name]
	if !ok {
		return secret.Value{}, notFound(name)
	}
	return secret.New(k.Value), nil
}

// List returns the names in order.
func (f *File) List(context.Context) ([]Entry, error) {
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(c.Secrets))
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		out = append(out, Entry{name, c.Secrets[name].Set})
	}
	return out, nil
}

// Set adds or replaces a secret.
func (f *File) Set(_ context.Context, name string, v secret.Value) error {
	if err := errors.Join(CheckName(name), CheckValue(v)); err != nil {
		return err
	}
	return f.change(func(c *contents) error {
		c.Secrets[name] = kept{v.Reveal(), f.clock().UTC().Truncate(time.Second)}
		if len(c.Secrets) > MaxSecrets {
			return problem.New(problem.Usage, fmt.Sprintf("the store holds %d secrets", MaxSecrets), "remove those that nothing names any more")
		}
		return nil
	})
}

// Remove forgets a secret.
func (f *File) Remove(_ context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if c, err := f.read(); err != nil || len(c.Secrets) == 0 {
		return cmp.Or(err, notFound(name)) // there may be no folder to write in
	}
	return f.change(func(c *contents) error {
		if _, ok := c.Secrets[name]; !ok {
			return notFound(name)
		}
		delete(c.Secrets, name)
		return nil
	})
}

// read decrypts the file; one that is not there is empty.
func (f *File) read() (*contents, error) {
	c := &contents{Format: format, Secrets: map[string]kept{}}
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't open the secret store", "")
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't open the secret store", "")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, problem.New(problem.ConfigInvalid, f.path+" may be read by others", "chmod 600 it; who could read its identity as well has the secrets")
	}
	plain, err := age.Decrypt(io.LimitReader(in, maxFile), f.identity)
	if err != nil {
		return nil, problem.New(problem.ConfigInvalid, "the secret store cannot be decrypted", "the file is damaged, or the identity is another one's")
	}
	b, err := io.ReadAll(plain)
	if err != nil {
		return nil, problem.New(problem.ConfigInvalid, "the secret store is damaged", "bring it back from a copy")
	}
	defer clear(b)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	// What a decoder says about bad input may quote it.
	if dec.Decode(c) != nil || c.Format != format || c.Secrets == nil {
		return nil, problem.New(problem.ConfigInvalid, "the secret store has another format", "a newer gatehouse wrote it, or it is no secret store")
	}
	return c, nil
}

// change applies edit to what the file holds now and makes the result durable.
func (f *File) change(edit func(*contents) error) error {
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	c, err := f.read()
	if err != nil {
		return err
	}
	if err := edit(c); err != nil {
		return err
	}
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("couldn't encode the secret store: %w", err)
	}
	defer clear(b)
	if err := f.write(b); err != nil {
		return fmt.Errorf("couldn't write the secret store: %w", err)
	}
	return nil
}

// lock keeps two processes from losing each other's change. The lock file stays:
// a removed one could be held by two.
func (f *File) lock() (unlock func(), err error) {
	l, err := os.OpenFile(f.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("couldn't lock the secret store: %w", err)
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't lock the secret store: %w", err), l.Close())
	}
	return func() { _ = l.Close() }, nil
}

func (f *File) write(plain []byte) error {
	dir := filepath.Dir(f.path)
	out, err := os.CreateTemp(dir, ".tmp-secrets-") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // gone already once it is renamed
	w, err := age.Encrypt(out, f.identity.Recipient())
	if err == nil {
		_, err = w.Write(plain)
		err = errors.Join(err, w.Close())
	}
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), f.path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
