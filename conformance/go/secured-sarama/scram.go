package main

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// exchange is the client's side of SCRAM (RFC 5802), which Sarama leaves to its user.
type exchange struct {
	hash           func() hash.Hash
	user, password string
	step           int
	first          string
}

func sha256Exchange() *exchange { return &exchange{hash: sha256.New} }
func sha512Exchange() *exchange { return &exchange{hash: sha512.New} }

// nonce may be the same each time: the broker adds its own.
const nonce = "secured-sarama"

func (it *exchange) Begin(user, password, _ string) error {
	it.user, it.password, it.step = user, password, 0
	return nil
}

func (it *exchange) Done() bool { return it.step == 3 }

func (it *exchange) Step(challenge string) (string, error) {
	it.step++
	switch it.step {
	case 1:
		it.first = fmt.Sprintf("n=%s,r=%s", it.user, nonce)
		return "n,," + it.first, nil
	case 2:
		return it.proof(challenge)
	default:
		return "", nil
	}
}

func (it *exchange) proof(challenge string) (string, error) {
	parts := map[string]string{}
	for _, part := range strings.Split(challenge, ",") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	salt, err := base64.StdEncoding.DecodeString(parts["s"])
	if err != nil {
		return "", err
	}
	iterations, err := strconv.Atoi(parts["i"])
	if err != nil {
		return "", errors.New("no iterations: " + challenge)
	}
	salted, err := pbkdf2.Key(it.hash, it.password, salt, iterations, it.hash().Size())
	if err != nil {
		return "", err
	}
	key := it.mac(salted, "Client Key")
	stored := it.hash()
	stored.Write(key)
	last := "c=biws,r=" + parts["r"]
	signature := it.mac(stored.Sum(nil), it.first+","+challenge+","+last)
	for i := range key {
		key[i] ^= signature[i]
	}
	return last + ",p=" + base64.StdEncoding.EncodeToString(key), nil
}

func (it *exchange) mac(key []byte, text string) []byte {
	made := hmac.New(it.hash, key)
	made.Write([]byte(text))
	return made.Sum(nil)
}
