// Package sandboxtest holds every sandbox.Provider to the contract. It starts
// sandboxes with the provider it is given, runs the probe and hostile agents in
// them and returns one sandbox.Case per case of the matrix (docs/sandbox.md).
// It writes only into the folder it is given. It must never judge a case by
// what a provider declares, and never pass one that it could not run.
//
// Implementers call Test; `gatehouse conformance run` calls Suite.Run.
package sandboxtest
