package lines

import "strings"

// Way is how a client reaches a secured broker: the listener, by its name in small letters, and Kafka's names of the
// security protocol and of the SASL mechanism; SSL has no mechanism.
type Way struct{ Listener, Protocol, Mechanism string }

// Bearer is with a token of the run's issuer, in a file of the name that stands for the user.
var Bearer = Way{"oauth", "SASL_PLAINTEXT", "OAUTHBEARER"}

// BadTokens are those with which nobody gets in.
var BadTokens = []string{"expired", "audience", "stranger"}

// User is who gets in this way.
func (way Way) User() string {
	switch way.Mechanism {
	case "":
		return "client"
	case "OAUTHBEARER":
		return "valid"
	}
	return "alice"
}

func (way Way) String() string { return strings.TrimSpace(way.Protocol + " " + way.Mechanism) }

// Ways gives those that the scripts of the Go clients try, each as a type of the script's own.
func Ways[W any](of func(Way) W) []W {
	all := []Way{
		{"sasl", "SASL_PLAINTEXT", "PLAIN"}, {"sasl", "SASL_PLAINTEXT", "SCRAM-SHA-256"},
		{"saslssl", "SASL_SSL", "PLAIN"}, {"saslssl", "SASL_SSL", "SCRAM-SHA-256"},
		{"saslssl", "SASL_SSL", "SCRAM-SHA-512"}, {"ssl", "SSL", ""},
	}
	made := make([]W, 0, len(all))
	for _, way := range all {
		made = append(made, of(way))
	}
	return made
}
