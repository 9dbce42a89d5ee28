// Package lines is what the Go scripts print, one line of JSON a step, {"step": …, "outcome": …}, the same on every
// run, and the series of records that they produce: keys, values and headers that are there, empty and null, with
// fixed timestamps.
package lines

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// T0 is the first record's timestamp in milliseconds.
const T0 = 1_700_000_000_000

// Patience bounds every wait of a script, on a machine that does much else.
const Patience = 60 * time.Second

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

// GiveUp ends the script: two brokers are not alike because both are waited for in vain.
func GiveUp(what string) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(3)
}

const (
	incrementalAlterConfigs = 44
	describeConfigs         = 32
	setting                 = "consumer.session.timeout.ms"
)

var markers = 45_000

// Settle waits until the only broker has applied every change before this call, as Script.settle of the Java scripts
// does: a controller's answer may come before. It makes two changes of a group's setting (IncrementalAlterConfigs v0),
// and asks for each until it is described (DescribeConfigs v1).
func Settle() {
	connection, err := net.DialTimeout("tcp", os.Args[1], Patience)
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	// One resource of the type of groups, and one setting of it.
	resource := slices.Concat([]byte{0, 0, 0, 1, 32}, wireText(fmt.Sprintf("settled-%d", os.Getpid())),
		[]byte{0, 0, 0, 1}, wireText(setting))
	for range 2 {
		markers++
		value := wireText(fmt.Sprint(markers))
		answer := ask(connection, incrementalAlterConfigs, 0, slices.Concat(resource, []byte{0}, value, []byte{0}))
		// After the correlation ID, the throttle time and the length of the array.
		if code := binary.BigEndian.Uint16(answer[12:]); code != 0 {
			GiveUp(fmt.Sprintf("the setting of a group is refused with error %d", code))
		}
		wanted := slices.Concat(wireText(setting), value)
		end := time.Now().Add(Patience)
		for !bytes.Contains(ask(connection, describeConfigs, 1, slices.Concat(resource, []byte{0})), wanted) {
			if time.Now().After(end) {
				GiveUp("a change is not applied after " + Patience.String())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func wireText(text string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
}

func ask(connection net.Conn, api, version uint16, body []byte) []byte {
	request := binary.BigEndian.AppendUint16(nil, api)
	request = binary.BigEndian.AppendUint16(request, version)
	request = binary.BigEndian.AppendUint32(request, 1)
	request = slices.Concat(request, wireText("settle"), body)
	if err := connection.SetDeadline(time.Now().Add(Patience)); err != nil {
		panic(err)
	}
	if _, err := connection.Write(slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request)); err != nil {
		panic(err)
	}
	length := make([]byte, 4)
	if _, err := io.ReadFull(connection, length); err != nil {
		panic(err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(length))
	if _, err := io.ReadFull(connection, answer); err != nil {
		panic(err)
	}
	return answer
}
