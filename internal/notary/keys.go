package notary

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// Files of a key folder.
const (
	rootFile       = "root.key"
	sealFile       = "seal.key"
	checkpointFile = "checkpoint.key"
	nodeFile       = "node.key"
	keysetFile     = "keyset.note"
	maxKeyFile     = 1 << 20
)

// Keys are what a node signs and encrypts with. The root key, which signs the
// keyset, may be absent: it belongs offline.
type Keys struct {
	keyset     *receipts.Keyset
	note       []byte
	root       ed25519.PrivateKey // nil when offline
	seal       crypto.Signer
	checkpoint crypto.Signer
	node       secret.Value
}

// Signer is a key of one purpose whose private half is elsewhere: in a KMS, an
// HSM, another process. Its Public is an ed25519.PublicKey and its Sign takes
// the message itself (crypto.Hash(0)), as ed25519.PrivateKey does.
//
// The checkpoint key signs about once a second and is meant for this; while it
// fails no checkpoint is signed, which auditors see as silence, and the node goes
// on. The seal key signs every journal group, hundreds a second: one failure
// stops the journal, and with it the node.
type Signer struct {
	Purpose receipts.Purpose // SealKey or CheckpointKey
	Key     crypto.Signer
}

// NewKeys makes keys in memory, for a log of one run. Origin is the log's name
// in C2SP form, for example gatehouse.example/node-1. What signers hold is not
// made here.
func NewKeys(origin string, signers ...Signer) (*Keys, error) {
	_, root, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate keys: %w", err)
	}
	return newKeys(origin, origin+"/root", root, signers)
}

// Run returns keys for a log of its own below the origin, signed by the same
// root: auditors who pin the root's fingerprint judge it as they judge the
// node's. The name must never come twice: two logs of one name are a fork. The
// root key must be here: problem.KeysMissing.
func (k *Keys) Run(name string) (*Keys, error) {
	if k.root == nil {
		return nil, problem.New(problem.KeysMissing, "the root key is not here, and a run's log needs its signature",
			"Make a key folder for runs with gatehouse key init FOLDER --origin NAME, and let auditors pin its root.")
	}
	return newKeys(k.Origin()+"/"+name, k.keyset.Root.Name, k.root, nil)
}

func newKeys(origin, rootName string, root ed25519.PrivateKey, signers []Signer) (*Keys, error) {
	if err := receipts.CheckName(origin); err != nil {
		return nil, problem.Wrap(err, problem.KeysInvalid, "the log's origin is malformed",
			"Use a name like gatehouse.example/node-1.")
	}
	k := &Keys{root: root}
	for p, key := range map[receipts.Purpose]*crypto.Signer{receipts.SealKey: &k.seal, receipts.CheckpointKey: &k.checkpoint} {
		if *key = held(signers, p); *key != nil {
			continue
		}
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("generate keys: %w", err)
		}
		*key = private
	}
	seal, checkpoint := publicOf(k.seal), publicOf(k.checkpoint)
	if seal == nil || checkpoint == nil {
		return nil, problem.New(problem.KeysInvalid, "a signer's key is not Ed25519", "")
	}
	node := make([]byte, 32)
	rand.Read(node) // never fails since Go 1.24
	k.node = secret.New(node)
	k.keyset = &receipts.Keyset{
		Origin: origin, Serial: 1,
		Root: receipts.Key{Purpose: receipts.RootKey, Name: rootName, Public: public(k.root)},
		Keys: []receipts.Key{
			{Purpose: receipts.SealKey, Name: origin + "/seal", Public: seal},
			{Purpose: receipts.CheckpointKey, Name: origin, Public: checkpoint},
		},
	}
	var err error
	if k.note, err = k.keyset.Sign(k.root); err != nil {
		return nil, fmt.Errorf("generate keys: %w", err)
	}
	return k, nil
}

// held returns the signer of a purpose, nil if its key is a file.
func held(signers []Signer, p receipts.Purpose) crypto.Signer {
	for _, s := range signers {
		if s.Purpose == p {
			return s.Key
		}
	}
	return nil
}

func publicOf(k crypto.Signer) ed25519.PublicKey {
	pub, _ := k.Public().(ed25519.PublicKey)
	return pub
}

// GenerateKeys makes keys and writes them to dir, each file 0600. It overwrites
// nothing: problem.KeysExist. It returns the root's fingerprint, which auditors
// pin; the caller tells the operator to move root.key offline. What signers hold
// is named in the keyset and gets no file.
func GenerateKeys(dir, origin string, signers ...Signer) (rootFingerprint string, err error) {
	k, err := NewKeys(origin, signers...)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("generate keys: %w", err)
	}
	files := map[string][]byte{
		nodeFile:   []byte(base64.StdEncoding.EncodeToString(k.node.Reveal()) + "\n"),
		keysetFile: k.note,
	}
	for name, key := range map[string]crypto.Signer{rootFile: k.root, sealFile: k.seal, checkpointFile: k.checkpoint} {
		key, ok := key.(ed25519.PrivateKey)
		if !ok {
			continue // held elsewhere
		}
		if files[name], err = encodeKey(key); err != nil {
			return "", fmt.Errorf("generate keys: %w", err)
		}
	}
	for name := range files { // all or nothing, as far as a folder allows
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return "", problem.New(problem.KeysExist, "there are keys in "+dir+" already",
				"Use another folder; a node that loses its keys cannot continue its log.")
		}
	}
	for name, b := range files {
		if err := writeKeyFile(filepath.Join(dir, name), b); err != nil {
			return "", fmt.Errorf("generate keys: %w", err)
		}
	}
	if err := syncDir(dir); err != nil {
		return "", fmt.Errorf("generate keys: %w", err)
	}
	return k.RootFingerprint(), nil
}

func writeKeyFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// LoadKeys reads the keys that GenerateKeys wrote. It refuses files that others
// may read, symbolic links, keys that the keyset does not name, and a folder in
// which a key change was cut short. The keys that signers hold have no files.
func LoadKeys(dir string, signers ...Signer) (*Keys, error) {
	if _, err := os.Lstat(filepath.Join(dir, nextFile)); err == nil {
		return nil, problem.New(problem.KeysInvalid, "a key change in "+dir+" is not finished", "Run gatehouse key rotate: it finishes the change.")
	}
	return OpenKeys(dir, signers...)
}

// OpenKeys is LoadKeys for ChangeKeys, which finishes what was cut short. It
// puts a successor in place whose keyset is in force already.
func OpenKeys(dir string, signers ...Signer) (*Keys, error) {
	k := &Keys{}
	note, err := readKeyFile(dir, keysetFile)
	if err != nil {
		return nil, err
	}
	k.note = note
	// The keyset is the node's own: it is checked against the root it names.
	// Auditors check it against the root they pinned.
	ks, err := receipts.ParseKeyset(note, "")
	if ks == nil {
		return nil, invalidKey(keysetFile, err)
	}
	k.keyset = ks
	b, err := readKeyFile(dir, nodeFile)
	if err != nil {
		return nil, err
	}
	node, err := base64.StdEncoding.DecodeString(trimNewline(b))
	if err != nil || len(node) != 32 {
		return nil, invalidKey(nodeFile, errors.New("32 bytes in base64 expected"))
	}
	k.node = secret.New(node)
	if k.seal, err = activeKey(dir, ks, receipts.SealKey, signers); err != nil {
		return nil, err
	}
	if k.checkpoint, err = activeKey(dir, ks, receipts.CheckpointKey, signers); err != nil {
		return nil, err
	}
	k.root, err = readSigningKey(dir, rootFile)
	if problem.CodeOf(err) == problem.KeysMissing {
		return k, nil // offline, as it should be
	}
	if err != nil {
		return nil, err
	}
	if !ks.Root.Public.Equal(public(k.root)) {
		return nil, invalidKey(rootFile, errors.New("the keyset is signed by another root"))
	}
	return k, nil
}

// activeKey returns the key that the keyset names as active: a signer's, or that
// of a file. A change that was cut short behind its last step has left the file
// under its successor's name.
func activeKey(dir string, ks *receipts.Keyset, p receipts.Purpose, signers []Signer) (crypto.Signer, error) {
	active, ok := ks.Active(p)
	if !ok {
		return nil, invalidKey(fileOf(p), errors.New("the log was ended: its key is retired"))
	}
	if key := held(signers, p); key != nil {
		if !active.Public.Equal(publicOf(key)) {
			return nil, invalidKey(fileOf(p), errors.New("the signer holds another key than the keyset names"))
		}
		return key, nil
	}
	for _, name := range []string{fileOf(p), fileOf(p) + nextSuffix} {
		key, err := readSigningKey(dir, name)
		switch {
		case problem.CodeOf(err) == problem.KeysMissing && name != fileOf(p):
		case err != nil:
			return nil, err
		case active.Public.Equal(public(key)):
			if name != fileOf(p) {
				err = errors.Join(adopt(dir, fileOf(p)), syncDir(dir))
			}
			return key, err
		}
	}
	return nil, invalidKey(fileOf(p), errors.New("the keyset does not name it as the active key"))
}

func readSigningKey(dir, name string) (ed25519.PrivateKey, error) {
	b, err := readKeyFile(dir, name)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
		return nil, invalidKey(name, errors.New("one PEM block PRIVATE KEY expected"))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, invalidKey(name, errors.New("not a PKCS 8 key")) // the cause may quote key bytes
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, invalidKey(name, errors.New("not an Ed25519 key"))
	}
	return key, nil
}

func readKeyFile(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	// O_NONBLOCK: a pipe put in place of the file must not hang the start.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Wrap(err, problem.KeysMissing, "there is no "+name+" in "+dir, "Run gatehouse init, or restore the keys.")
	}
	if err != nil {
		return nil, invalidKey(name, err)
	}
	defer f.Close() //nolint:errcheck // read only
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, invalidKey(name, err)
	case !st.Mode().IsRegular():
		return nil, invalidKey(name, errors.New("not a regular file"))
	case st.Mode().Perm()&0o077 != 0 && name != keysetFile:
		return nil, problem.New(problem.KeysInvalid, name+" is open to others", "chmod 600 "+path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil || len(b) > maxKeyFile {
		return nil, invalidKey(name, errors.Join(err, errors.New("at most 1 MiB expected")))
	}
	return b, nil
}

func invalidKey(name string, err error) error {
	return problem.Wrap(err, problem.KeysInvalid, name+" cannot be used", "Restore the keys from their backup.")
}

func trimNewline(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return string(b)
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return ed25519.PublicKey(k[32:]) }

// Origin returns the name of the log.
func (k *Keys) Origin() string { return k.keyset.Origin }

// RootFingerprint returns what auditors pin.
func (k *Keys) RootFingerprint() string { return k.keyset.RootFingerprint() }

// RootOffline reports whether the root key is not here, as it should be.
func (k *Keys) RootOffline() bool { return k.root == nil }

// Keyset returns the keys' public side. The caller must not change it.
func (k *Keys) Keyset() *receipts.Keyset { return k.keyset }

// Note returns the keyset as signed by the root.
func (k *Keys) Note() []byte { return k.note }

// NodeKey returns the key for the journal's private records.
func (k *Keys) NodeKey() secret.Value { return k.node }

// String names the log, so that no verb prints a private key.
func (k *Keys) String() string { return "keys of " + k.keyset.Origin }

// GoString is String.
func (k *Keys) GoString() string { return k.String() }

// Format is String for every verb.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }
