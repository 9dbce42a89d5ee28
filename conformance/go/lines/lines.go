// Package lines is what the Go scripts print, one line of JSON a step, {"step": …, "outcome": …}, the same on every
// run, and the series of records that they produce: keys, values and headers that are there, empty and null, with
// fixed timestamps.
package lines

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"time"
)

// T0 is the first record's timestamp in milliseconds.
const T0 = 1_700_000_000_000

// Patience bounds every wait of a script.
const Patience = 20 * time.Second

// IsSinceKafka44 tells the settings of topics of Kafka 4.4, which Ottla shows and the Kafka that it is compared with,
// 4.3.1, does not have.
func IsSinceKafka44(setting string) bool {
	switch setting {
	case "errors.deadletterqueue.group.enable", "max.decompressed.message.bytes", "remote.copy.lag.bytes",
		"remote.copy.lag.ms":
		return true
	}
	return false
}

type line struct {
	Step    string `json:"step"`
	Outcome any    `json:"outcome"`
}

// Step runs the action and prints its outcome; an error is an outcome too.
func Step(name string, action func() (any, error)) {
	text, err := json.Marshal(line{name, Outcome(action())})
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, string(text))
}

// Outcome is the value, or the error as a text.
func Outcome(value any, err error) any {
	if err != nil {
		return "! " + err.Error()
	}
	return value
}

// Header is a record's header.
type Header struct {
	Key   string
	Value []byte
}

// Record gives the i-th record of a series.
func Record(i int) (key, value []byte, headers []Header, timestamp time.Time) {
	if i%5 != 4 {
		key = fmt.Appendf(nil, "key-%d", i)
	}
	if i%7 != 6 {
		value = []byte(strings.Repeat(fmt.Sprintf("value-%d ", i), i*i))
	}
	for n := 0; n < i%3; n++ {
		headers = append(headers, Header{"same", fmt.Appendf(nil, "header-%d", n)})
	}
	if i%4 == 3 {
		headers = append(headers, Header{"empty", []byte{}})
	}
	return key, value, headers, time.UnixMilli(T0 + int64(i)*1000)
}

// Text shows bytes that may be null.
func Text(bytes []byte) string {
	if bytes == nil {
		return "null"
	}
	return string(bytes)
}

// Checksum shows a value by its length and CRC.
func Checksum(bytes []byte) string {
	if bytes == nil {
		return "null"
	}
	return fmt.Sprintf("%d/%08x", len(bytes), crc32.ChecksumIEEE(bytes))
}

// Settle gives the broker time to take over what a controller has answered already.
func Settle() {
	time.Sleep(time.Second)
}
