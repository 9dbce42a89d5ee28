package lines

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Place is where a script finds a secured broker.
type Place struct {
	// Addresses of the listeners, by their names in small letters.
	Addresses map[string]string
	// folder holds the certificates.
	folder string
}

// ReadPlace reads the file that describes the brokers of the script.
func ReadPlace(file string) Place {
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	addresses := map[string]string{}
	if err := json.Unmarshal(text, &addresses); err != nil {
		panic(err)
	}
	return Place{addresses, addresses["certificates"]}
}

// Token reads the OAuth token of this name.
func (place Place) Token(name string) string { return string(place.Certificate(name + ".jwt")) }

// Certificate reads a file of the folder.
func (place Place) Certificate(name string) []byte {
	text, err := os.ReadFile(filepath.Join(place.folder, name))
	if err != nil {
		panic(err)
	}
	return text
}
