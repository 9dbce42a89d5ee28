// Command secured-franz is franz-go's script on listeners with TLS and logins: `secured-franz BOOTSTRAP PLACE`, where the
// file PLACE has the addresses of the listeners and the folder of the certificates.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"ottla/conformance/lines"
)

const (
	topic  = "secured-secured-franz"
	prefix = "secured-franz-"
)

var (
	place lines.Place
	super *kadm.Client
)

func main() {
	place = lines.ReadPlace(os.Args[2])
	super = kadm.NewClient(client(os.Args[1:2]))
	defer super.Close()
	allowed()
	refused()
	denied()
	revoked()
	removed()
	throttled()
	sessions()
}

func client(brokers []string, options ...kgo.Opt) *kgo.Client {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(brokers...), kgo.ClientID("franz"), kgo.RetryTimeout(lines.Patience),
		kgo.RequestRetries(2), kgo.RecordRetries(2), kgo.RecordDeliveryTimeout(lines.Patience),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.UnknownTopicRetries(1),
	}, options...)
	made, err := kgo.NewClient(all...)
	if err != nil {
		panic(err)
	}
	return made
}

// way is how a client gets in.
type way struct{ lines.Way }

var (
	ways   = lines.Ways(func(it lines.Way) way { return way{it} })
	usual  = ways[4]
	mutual = ways[5]
	bearer = way{lines.Bearer}
)

// login is what a client needs that gets in this way as this user, or with this certificate.
func (it way) login(user, password string) []kgo.Opt {
	return it.trusting("authority", user, password)
}

func (it way) trusting(authority, user, password string) []kgo.Opt {
	options := []kgo.Opt{}
	if strings.HasSuffix(it.Protocol, "SSL") {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(place.Certificate(authority + ".pem"))
		config := &tls.Config{RootCAs: pool}
		if it.Mechanism == "" && user != "" {
			pair, err := tls.X509KeyPair(place.Certificate(user+".crt"), place.Certificate(user+".key"))
			if err != nil {
				panic(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch it.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: place.Token(user)}.AsMechanism()))
	}
	return options
}

func (it way) client(login []kgo.Opt, more ...kgo.Opt) *kgo.Client {
	return client([]string{place.Addresses[it.Listener]}, append(append([]kgo.Opt{}, login...), more...)...)
}

func as(user string, more ...kgo.Opt) *kgo.Client {
	return usual.client(usual.login(user, user+"-secret"), more...)
}

func patiently() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}

var (
	source = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
	// Which alert says that a certificate will not do is the TLS library's choice.
	alert = regexp.MustCompile(`remote error: tls: .*`)
	clock = regexp.MustCompile(`current time \S+ is after`)
)

// shown is an error's text without what two runs cannot share.
func shown(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	text := alert.ReplaceAllString(source.ReplaceAllString(err.Error(), ""), "remote error: tls")
	return clock.ReplaceAllString(text, "now is after")
}

// step prints the outcome of an action, an error being one.
func step(name string, action func() (any, error)) {
	lines.Step(name, func() (any, error) {
		value, err := action()
		if err != nil {
			return "! " + shown(err), nil
		}
		return value, nil
	})
}

func send(from *kgo.Client, to string, length int) (any, error) {
	result := from.ProduceSync(patiently(), &kgo.Record{Topic: to, Value: make([]byte, length)})
	return "sent", result.FirstErr()
}

// firstRead polls until something comes.
func firstRead(from *kgo.Client) (any, error) {
	for end := time.Now().Add(lines.Patience); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		found := from.PollFetches(ctx)
		cancel()
		for _, one := range found.Errors() {
			// A coordinator that was just made may still be loading.
			if !errors.Is(one.Err, context.DeadlineExceeded) && !errors.Is(one.Err, kerr.NotCoordinator) {
				return nil, one.Err
			}
		}
		if records := found.Records(); len(records) > 0 {
			return records[0].Offset, nil
		}
	}
	return "nothing", nil
}

func allowed() {
	for _, it := range append(ways, bearer) {
		step("allowed "+it.String(), func() (any, error) {
			user := it.User()
			made := it.client(it.login(user, user+"-secret"), kgo.ConsumeTopics(topic),
				kgo.ConsumerGroup("secured-franz-"+strings.ReplaceAll(it.String(), " ", "-")),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			defer made.Close()
			if _, err := send(made, topic, 100_000); err != nil {
				return nil, err
			}
			read, err := firstRead(made)
			if err != nil {
				return nil, err
			}
			// The coordinator of the first group may just be loading.
			commit := made.CommitUncommittedOffsets(patiently())
			for end := time.Now().Add(lines.Patience); commit != nil && time.Now().Before(end); {
				time.Sleep(100 * time.Millisecond)
				commit = made.CommitUncommittedOffsets(patiently())
			}
			if commit != nil {
				return nil, commit
			}
			names, err := topicNames(kadm.NewClient(made))
			return []any{read, names}, err
		})
	}
}

func topicNames(admin *kadm.Client) ([]string, error) {
	found, err := admin.ListTopics(patiently())
	own := []string{}
	for _, name := range found.Names() {
		if strings.Contains(name, "franz") {
			own = append(own, name)
		}
	}
	return own, err
}

// ---- who does not get in ---------------------------------------------------------------------------------------------

func refused() {
	type try struct {
		name  string
		way   way
		login []kgo.Opt
	}
	tries := []try{}
	for _, it := range ways[:5] {
		tries = append(tries, try{it.String() + ", wrong password", it, it.login("alice", "wrong")},
			try{it.String() + ", unknown user", it, it.login("nobody", "nobody-secret")})
	}
	for _, user := range lines.BadTokens {
		tries = append(tries, try{bearer.String() + ", " + user, bearer, bearer.login(user, "")})
	}
	absent := way{lines.Way{Listener: "sasl", Protocol: "SASL_PLAINTEXT", Mechanism: "SCRAM-SHA-512"}}
	tries = append(tries,
		try{"mechanism that is not enabled", absent, absent.login("alice", "alice-secret")},
		try{"SSL, an authority that the client does not trust", mutual, mutual.trusting("stranger", "client", "")},
		try{"SSL, no certificate", mutual, mutual.login("", "")},
		try{"SSL, an expired certificate", mutual, mutual.login("expired", "")},
		try{"SSL, a certificate of another authority", mutual, mutual.login("foreign", "")},
		try{"PLAINTEXT at a listener of SASL", ways[0], nil},
		try{"PLAINTEXT at a listener of SSL", mutual, nil},
		try{"SASL at a listener of SASL_SSL", usual, ways[0].login("alice", "alice-secret")},
		try{"SASL_SSL at a listener of SASL", ways[0], usual.login("alice", "alice-secret")},
		try{"SASL at a listener of SSL", mutual, ways[0].login("alice", "alice-secret")},
		try{"SSL at a listener of SASL_SSL", usual, mutual.login("client", "")},
	)
	for _, one := range tries {
		step("refused: "+one.name, func() (any, error) {
			// Connections are counted by how they end.
			hook := &connections{}
			made := one.way.client(one.login, kgo.WithHooks(hook), kgo.RequestRetries(0))
			defer made.Close()
			err := made.Ping(patiently())
			if err == nil {
				return "in", nil
			}
			return "! " + shown(err), nil
		})
	}
}

// connections sees how long a broker holds a client back.
type connections struct{ throttled atomic.Int64 }

func (it *connections) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	if interval > 0 {
		it.throttled.Add(1)
	}
}

func (it *connections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {}

// ---- who may not -----------------------------------------------------------------------------------------------------

func denied() {
	for _, user := range []string{"carol", "reader", "member"} {
		name := func(what string) string { return "denied: " + user + ", " + what }
		for _, to := range []string{topic, "secured-nothing"} {
			step(name("produce to "+to), func() (any, error) {
				made := as(user)
				defer made.Close()
				return send(made, to, 10)
			})
			step(name("produce to "+to+", not idempotent"), func() (any, error) {
				made := as(user, kgo.DisableIdempotentWrite())
				defer made.Close()
				return send(made, to, 10)
			})
		}
		step(name("a transaction"), func() (any, error) {
			made := as(user, kgo.TransactionalID("secured-franz"))
			defer made.Close()
			if err := made.BeginTransaction(); err != nil {
				return nil, err
			}
			return send(made, topic, 10)
		})
		step(name("read a partition"), func() (any, error) {
			made := as(user, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
				topic: {0: kgo.NewOffset().At(0)},
			}))
			defer made.Close()
			return firstRead(made)
		})
		step(name("be a member"), func() (any, error) {
			made := as(user, kgo.ConsumerGroup("secured-franz-"+user), kgo.ConsumeTopics(topic),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			defer made.Close()
			return firstRead(made)
		})
		made := as(user)
		admin := kadm.NewClient(made)
		step(name("list topics"), func() (any, error) { return topicNames(admin) })
		step(name("describe topics"), func() (any, error) {
			found, err := admin.ListTopics(patiently(), topic, "secured-nothing")
			outcomes := []any{}
			for _, one := range found.Sorted() {
				outcomes = append(outcomes, []any{one.Topic, why(one.Err), len(one.Partitions)})
			}
			return outcomes, err
		})
		step(name("create a topic"), func() (any, error) {
			found, err := admin.CreateTopic(patiently(), 1, 1, nil, "secured-franz-more")
			return []any{why(found.Err), found.ErrMessage}, err
		})
		step(name("delete topics"), func() (any, error) {
			found, err := admin.DeleteTopics(patiently(), topic, "secured-nothing")
			outcomes := []any{}
			for _, one := range found.Sorted() {
				outcomes = append(outcomes, []any{one.Topic, why(one.Err), one.ErrMessage})
			}
			return outcomes, err
		})
		step(name("commit"), func() (any, error) {
			offsets := kadm.Offsets{}
			offsets.AddOffset(topic, 0, 1, -1)
			found, err := admin.CommitOffsets(patiently(), "secured-franz-commit", offsets)
			if err != nil {
				return nil, err
			}
			return why(found.Error()), nil
		})
		step(name("committed"), func() (any, error) {
			found, err := admin.FetchOffsets(patiently(), "secured-franz-commit")
			return len(found), err
		})
		// What no administrator of other clients asks.
		for _, one := range requests() {
			step(name(one.name), func() (any, error) {
				answer, err := made.Request(patiently(), one.request)
				if err != nil {
					return nil, err
				}
				return one.shown(answer), nil
			})
		}
		made.Close()
	}
}

type request struct {
	name    string
	request kmsg.Request
	shown   func(kmsg.Response) any
}

func requests() []request {
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.ResourceType = kmsg.ACLResourceTypeAny
	acls.ResourcePatternType = kmsg.ACLResourcePatternTypeAny
	acls.Operation = kmsg.ACLOperationAny
	acls.PermissionType = kmsg.ACLPermissionTypeAny
	quotas := kmsg.NewPtrDescribeClientQuotasRequest()
	logDirs := kmsg.NewPtrDescribeLogDirsRequest()
	credentials := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	// Asked for all users, Kafka fails to say that this is denied, and closes the connection.
	credentials.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "alice"}}
	coordinator := kmsg.NewPtrFindCoordinatorRequest()
	coordinator.CoordinatorType = 1
	coordinator.CoordinatorKeys = []string{"secured-franz"}
	init := kmsg.NewPtrInitProducerIDRequest()
	return []request{
		{"describe ACLs", acls, func(it kmsg.Response) any {
			answer := it.(*kmsg.DescribeACLsResponse)
			return []any{why(kerr.ErrorForCode(answer.ErrorCode)), len(answer.Resources)}
		}},
		{"describe quotas", quotas, func(it kmsg.Response) any {
			answer := it.(*kmsg.DescribeClientQuotasResponse)
			return []any{why(kerr.ErrorForCode(answer.ErrorCode)), len(answer.Entries)}
		}},
		{"describe log dirs", logDirs, func(it kmsg.Response) any {
			answer := it.(*kmsg.DescribeLogDirsResponse)
			return []any{why(kerr.ErrorForCode(answer.ErrorCode)), len(answer.Dirs)}
		}},
		{"describe credentials", credentials, func(it kmsg.Response) any {
			answer := it.(*kmsg.DescribeUserSCRAMCredentialsResponse)
			return []any{why(kerr.ErrorForCode(answer.ErrorCode)), len(answer.Results)}
		}},
		{"find the coordinator of an id", coordinator, func(it kmsg.Response) any {
			answer := it.(*kmsg.FindCoordinatorResponse)
			outcomes := []any{why(kerr.ErrorForCode(answer.ErrorCode))}
			for _, one := range answer.Coordinators {
				outcomes = append(outcomes, why(kerr.ErrorForCode(one.ErrorCode)), one.ErrorMessage)
			}
			return outcomes
		}},
		{"a producer id", init, func(it kmsg.Response) any {
			return why(kerr.ErrorForCode(it.(*kmsg.InitProducerIDResponse).ErrorCode))
		}},
	}
}

func why(err error) any {
	if err == nil {
		return nil
	}
	return shown(err)
}

// ---- who no longer may -----------------------------------------------------------------------------------------------

func right(operation kadm.ACLOperation) *kadm.ACLBuilder {
	return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(operation).
		Allow("User:" + prefix + "revoked").AllowHosts("*")
}

func revoked() {
	grant := func(it *kadm.ACLBuilder) {
		if _, err := super.CreateACLs(patiently(), it); err != nil {
			panic(err)
		}
		lines.Settle()
	}
	revoke := func(it *kadm.ACLBuilder) {
		if _, err := super.DeleteACLs(patiently(), it); err != nil {
			panic(err)
		}
		lines.Settle()
	}
	user := prefix + "revoked"
	writer := as(user)
	defer writer.Close()
	write, read := right(kadm.OpWrite), right(kadm.OpRead)
	grant(write)
	step("revoked: a producer may", func() (any, error) { return send(writer, topic, 10) })
	revoke(write)
	step("revoked: a producer may no longer", func() (any, error) { return send(writer, topic, 10) })
	grant(write)
	step("revoked: a producer may again", func() (any, error) { return send(writer, topic, 10) })
	revoke(write)
	grant(read)
	reader := as(user, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	defer reader.Close()
	step("revoked: a reader may", func() (any, error) { return firstRead(reader) })
	revoke(read)
	step("revoked: a reader may no longer", func() (any, error) {
		// What was fetched before is given out first.
		for end := time.Now().Add(lines.Patience); time.Now().Before(end); {
			if read, err := firstRead(reader); err != nil || read == "nothing" {
				return read, err
			}
		}
		return "goes on", nil
	})
}

// removed is a user whose credential goes away: who is connected stays so.
func removed() {
	user := prefix + "removed"
	made := as(user)
	defer made.Close()
	step("removed: may", func() (any, error) { return send(made, topic, 10) })
	step("removed: the credential", func() (any, error) {
		found, err := super.AlterUserSCRAMs(patiently(),
			[]kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha512}}, nil)
		return why(found.Error()), err
	})
	lines.Settle()
	step("removed: is still connected", func() (any, error) { return send(made, topic, 10) })
	step("removed: comes anew", func() (any, error) {
		again := as(user, kgo.RequestRetries(0))
		defer again.Close()
		return "in", again.Ping(patiently())
	})
}

// ---- who has to wait -------------------------------------------------------------------------------------------------

func throttled() {
	step("throttled: a producer", func() (any, error) {
		hook := &connections{}
		// The zeros that are sent would be compressed to almost nothing.
		made := as(prefix+"slow", kgo.WithHooks(hook), kgo.ProducerBatchCompression(kgo.NoCompression()))
		defer made.Close()
		began := time.Now()
		isHeldBack := func() bool { return hook.throttled.Load() > 0 }
		// On a machine that pauses, the first ones may stay below the quota.
		for sent := 0; sent < 5 || !isHeldBack() && time.Since(began) < lines.Patience; sent++ {
			if _, err := send(made, topic, 1_500); err != nil {
				return nil, err
			}
		}
		return []any{time.Since(began) > 500*time.Millisecond, isHeldBack()}, nil
	})
}

// ---- sessions --------------------------------------------------------------------------------------------------------

// sessions last for a second and a half; the client begins each anew.
func sessions() {
	mechanisms := []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
	sort.Strings(mechanisms)
	for _, mechanism := range mechanisms {
		it := way{lines.Way{Listener: "reauth", Protocol: "SASL_PLAINTEXT", Mechanism: mechanism}}
		step(fmt.Sprintf("sessions: %v", it), func() (any, error) {
			made := it.client(it.login("alice", "alice-secret"))
			defer made.Close()
			for range 8 {
				if _, err := send(made, topic, 10); err != nil {
					return nil, err
				}
				time.Sleep(400 * time.Millisecond)
			}
			return "all sent", nil
		})
	}
}
