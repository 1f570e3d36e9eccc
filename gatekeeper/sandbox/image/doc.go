// Package image unpacks container images into root file systems for sandboxes,
// without a daemon and without a network. It reads OCI image layouts, folders
// or tar archives, that an operator placed in one folder, and writes each image
// once into a store, by its digest. It must never use bytes whose digest was
// not checked, write outside the folder it unpacks into whatever an archive's
// names and links say, or make a device, a set-user-id file or a special file.
package image
