// Package config is the one documented configuration struct of Gatehouse. It
// reads one YAML file and the environment variables and files that it names;
// it writes nothing. It must never print a secret, guess a default that
// weakens, or accept a key it does not know.
package config
