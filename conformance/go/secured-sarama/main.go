// Command secured-sarama is Sarama's script on listeners with TLS and logins: `secured-sarama BOOTSTRAP PLACE`, where the
// file PLACE has the addresses of the listeners and the folder of the certificates.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"os"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"ottla/conformance/lines"
)

const (
	topic  = "secured-secured-sarama"
	prefix = "secured-sarama-"
)

var place lines.Place

func main() {
	sarama.Logger = log.New(io.Discard, "", 0)
	place = lines.ReadPlace(os.Args[2])
	allowed()
	refused()
	denied()
	revoked(os.Args[1:2])
	throttled()
	sessions()
}

// way is how a client gets in.
type way struct{ lines.Way }

var (
	ways   = lines.Ways(func(it lines.Way) way { return way{it} })
	usual  = ways[4]
	mutual = ways[5]
	bearer = way{lines.Bearer}
)

// fileToken is a token in the file of this name.
type fileToken string

func (it fileToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: place.Token(string(it))}, nil
}

func (it way) brokers() []string { return []string{place.Addresses[it.Listener]} }

func base() *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "sarama"
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Retry.Max = 1
	made.Consumer.Return.Errors = true
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Metadata.Retry.Max = 1
	made.Net.DialTimeout = lines.Patience
	made.Net.ReadTimeout = lines.Patience
	made.Admin.Retry.Max = 1
	made.Admin.Timeout = lines.Patience
	return made
}

// config is that of a client that gets in this way as this user, or with this certificate.
func (it way) config(authority, user, password string) *sarama.Config {
	made := base()
	if strings.HasSuffix(it.Protocol, "SSL") {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(place.Certificate(authority + ".pem"))
		made.Net.TLS.Enable = true
		made.Net.TLS.Config = &tls.Config{RootCAs: pool}
		if it.Mechanism == "" && user != "" {
			pair, err := tls.X509KeyPair(place.Certificate(user+".crt"), place.Certificate(user+".key"))
			if err != nil {
				panic(err)
			}
			made.Net.TLS.Config.Certificates = []tls.Certificate{pair}
		}
	}
	if it.Mechanism != "" {
		made.Net.SASL.Enable = true
		made.Net.SASL.Mechanism = sarama.SASLMechanism(it.Mechanism)
		made.Net.SASL.User, made.Net.SASL.Password = user, password
		made.Net.SASL.TokenProvider = fileToken(user)
		made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			if it.Mechanism == "SCRAM-SHA-256" {
				return sha256Exchange()
			}
			return sha512Exchange()
		}
	}
	return made
}

func as(user string) *sarama.Config { return usual.config("authority", user, user+"-secret") }

var (
	source = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
	// Which alert says that a certificate will not do is the TLS library's choice.
	alert     = regexp.MustCompile(`remote error: tls: .*`)
	described = regexp.MustCompile(`Request .* needs`)
	clock     = regexp.MustCompile(`current time \S+ is after`)
)

// step prints the outcome of an action, an error being one, without what two runs cannot share.
func step(name string, action func() (any, error)) {
	lines.Step(name, func() (any, error) {
		value, err := action()
		if err != nil {
			text := alert.ReplaceAllString(source.ReplaceAllString(err.Error(), ""), "remote error: tls")
			text = described.ReplaceAllString(text, "Request needs")
			return "! " + clock.ReplaceAllString(text, "now is after"), nil
		}
		return value, nil
	})
}

func send(brokers []string, config *sarama.Config, to string, length int) (any, error) {
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(message(to, length))
	return "sent", err
}

func message(to string, length int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: to, Value: sarama.ByteEncoder(make([]byte, length))}
}

// readFirst reads a partition from its beginning.
func readFirst(brokers []string, config *sarama.Config) (any, error) {
	consumer, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	from, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	select {
	case found := <-from.Messages():
		return found.Offset, nil
	case found := <-from.Errors():
		return nil, found.Err
	case <-time.After(lines.Patience):
		return "nothing", nil
	}
}

func allowed() {
	for _, it := range append(ways, bearer) {
		step("allowed "+it.String(), func() (any, error) {
			user := it.User()
			config := it.config("authority", user, user+"-secret")
			if _, err := send(it.brokers(), config, topic, 100_000); err != nil {
				return nil, err
			}
			read, err := readFirst(it.brokers(), config)
			if err != nil {
				return nil, err
			}
			member, err := beMember(it.brokers(), config, "secured-sarama-"+strings.ReplaceAll(it.String(), " ", "-"),
				lines.Patience)
			return []any{read, member}, err
		})
	}
}

// member is a member of a group until something comes.
type member struct{ first chan int64 }

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (it *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for found := range claim.Messages() {
		session.MarkMessage(found, "")
		select {
		case it.first <- found.Offset:
		default:
		}
	}
	return nil
}

func beMember(brokers []string, config *sarama.Config, name string, patience time.Duration) (any, error) {
	group, err := sarama.NewConsumerGroup(brokers, name, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	handler := &member{make(chan int64, 1)}
	ended := make(chan error, 1)
	go func() { ended <- group.Consume(ctx, []string{topic}, handler) }()
	select {
	case offset := <-handler.first:
		cancel()
		<-ended
		return offset, nil
	case found := <-group.Errors():
		return nil, found
	case err := <-ended:
		return "ended", err
	}
}

// ---- who does not get in ---------------------------------------------------------------------------------------------

func refused() {
	type try struct {
		name   string
		way    way
		config *sarama.Config
	}
	tries := []try{}
	for _, it := range ways[:5] {
		tries = append(tries, try{it.String() + ", wrong password", it, it.config("authority", "alice", "wrong")},
			try{it.String() + ", unknown user", it, it.config("authority", "nobody", "nobody-secret")})
	}
	for _, user := range lines.BadTokens {
		tries = append(tries, try{bearer.String() + ", " + user, bearer, bearer.config("authority", user, "")})
	}
	absent := way{lines.Way{Listener: "sasl", Protocol: "SASL_PLAINTEXT", Mechanism: "SCRAM-SHA-512"}}
	oldHandshake := ways[0].config("authority", "alice", "wrong")
	oldHandshake.Net.SASL.Version = sarama.SASLHandshakeV0
	tries = append(tries,
		try{"mechanism that is not enabled", absent, absent.config("authority", "alice", "alice-secret")},
		try{"wrong password, without headers", ways[0], oldHandshake},
		try{"SSL, an authority that the client does not trust", mutual, mutual.config("stranger", "client", "")},
		try{"SSL, no certificate", mutual, mutual.config("authority", "", "")},
		try{"SSL, an expired certificate", mutual, mutual.config("authority", "expired", "")},
		try{"SSL, a certificate of another authority", mutual, mutual.config("authority", "foreign", "")},
		try{"PLAINTEXT at a listener of SASL", ways[0], base()},
	)
	for _, one := range tries {
		step("refused: "+one.name, func() (any, error) {
			made, err := sarama.NewClient(one.way.brokers(), one.config)
			if err != nil {
				return nil, err
			}
			made.Close()
			return "in", nil
		})
		// Without the client's own words for all of its brokers.
		step("refused by the broker: "+one.name, func() (any, error) {
			broker := sarama.NewBroker(one.way.brokers()[0])
			if err := broker.Open(one.config); err != nil {
				return nil, err
			}
			defer broker.Close()
			if _, err := broker.Connected(); err != nil {
				return nil, err
			}
			_, err := broker.GetMetadata(sarama.NewMetadataRequest(sarama.MaxVersion, nil))
			return "in", err
		})
	}
}

// ---- who may not -----------------------------------------------------------------------------------------------------

func denied() {
	for _, user := range []string{"carol", "reader", "member"} {
		name := func(what string) string { return "denied: " + user + ", " + what }
		step(name("produce"), func() (any, error) { return send(usual.brokers(), as(user), topic, 10) })
		step(name("produce, idempotent"), func() (any, error) {
			config := as(user)
			config.Producer.Idempotent = true
			config.Net.MaxOpenRequests = 1
			return send(usual.brokers(), config, topic, 10)
		})
		step(name("read a partition"), func() (any, error) { return readFirst(usual.brokers(), as(user)) })
		step(name("be a member"), func() (any, error) {
			patience := lines.Patience
			if user == "reader" {
				// The client looks for the coordinator again and again, and does not report the error.
				patience = 8 * time.Second
			}
			return beMember(usual.brokers(), as(user), "secured-sarama-"+user, patience)
		})
		admin, err := sarama.NewClusterAdmin(usual.brokers(), as(user))
		if err != nil {
			panic(err)
		}
		step(name("list topics"), func() (any, error) {
			found, err := admin.ListTopics()
			own := []string{}
			for one := range found {
				if strings.Contains(one, "sarama") {
					own = append(own, one)
				}
			}
			sort.Strings(own)
			return own, err
		})
		step(name("create a topic"), func() (any, error) {
			detail := sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
			return nil, admin.CreateTopic("secured-sarama-more", &detail, false)
		})
		step(name("delete a topic"), func() (any, error) { return nil, admin.DeleteTopic(topic) })
		step(name("create partitions"), func() (any, error) {
			return nil, admin.CreatePartitions(topic, 2, nil, false)
		})
		step(name("list ACLs"), func() (any, error) {
			found, err := admin.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceAny,
				ResourcePatternTypeFilter: sarama.AclPatternAny, Operation: sarama.AclOperationAny,
				PermissionType: sarama.AclPermissionAny})
			return len(found), err
		})
		step(name("describe credentials"), func() (any, error) {
			found, err := admin.DescribeUserScramCredentials([]string{"alice"})
			return len(found), err
		})
		step(name("describe groups"), func() (any, error) {
			found, err := admin.DescribeConsumerGroups([]string{"secured-sarama-" + user})
			outcomes := []any{}
			for _, one := range found {
				outcomes = append(outcomes, one.Err.Error(), one.State)
			}
			return outcomes, err
		})
		step(name("delete a group"), func() (any, error) { return nil, admin.DeleteConsumerGroup("secured-sarama-x") })
		admin.Close()
	}
}

// ---- who no longer may -----------------------------------------------------------------------------------------------

func revoked(plain []string) {
	super, err := sarama.NewClusterAdmin(plain, base())
	if err != nil {
		panic(err)
	}
	defer super.Close()
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic,
		ResourcePatternType: sarama.AclPatternLiteral}
	user := prefix + "revoked"
	acl := sarama.Acl{Principal: "User:" + user, Host: "*", Operation: sarama.AclOperationWrite,
		PermissionType: sarama.AclPermissionAllow}
	grant := func() {
		if err := super.CreateACL(resource, acl); err != nil {
			panic(err)
		}
		lines.Settle()
	}
	revoke := func() {
		name, principal := topic, acl.Principal
		filter := sarama.AclFilter{ResourceType: sarama.AclResourceTopic, ResourceName: &name,
			ResourcePatternTypeFilter: sarama.AclPatternLiteral, Principal: &principal,
			Operation: sarama.AclOperationWrite, PermissionType: sarama.AclPermissionAllow}
		if _, err := super.DeleteACL(filter, false); err != nil {
			panic(err)
		}
		lines.Settle()
	}
	grant()
	producer, err := sarama.NewSyncProducer(usual.brokers(), as(user))
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	try := func() (any, error) {
		_, _, err := producer.SendMessage(message(topic, 10))
		return "sent", err
	}
	step("revoked: may", try)
	revoke()
	step("revoked: may no longer", try)
	grant()
	step("revoked: may again", try)
	revoke()
}

// ---- who has to wait -------------------------------------------------------------------------------------------------

func throttled() {
	step("throttled: a producer", func() (any, error) {
		config := as(prefix + "slow")
		producer, err := sarama.NewSyncProducer(usual.brokers(), config)
		if err != nil {
			return nil, err
		}
		defer producer.Close()
		began := time.Now()
		for range 5 {
			if _, _, err := producer.SendMessage(message(topic, 1_500)); err != nil {
				return nil, err
			}
		}
		return time.Since(began) > 500*time.Millisecond, nil
	})
}

// ---- sessions --------------------------------------------------------------------------------------------------------

// sessions last for a second and a half; the client begins each anew.
func sessions() {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		it := way{lines.Way{Listener: "reauth", Protocol: "SASL_PLAINTEXT", Mechanism: mechanism}}
		step("sessions: "+it.String(), func() (any, error) {
			producer, err := sarama.NewSyncProducer(it.brokers(), it.config("authority", "alice", "alice-secret"))
			if err != nil {
				return nil, err
			}
			defer producer.Close()
			for range 8 {
				if _, _, err := producer.SendMessage(message(topic, 10)); err != nil {
					return nil, err
				}
				time.Sleep(400 * time.Millisecond)
			}
			return "all sent", nil
		})
	}
}
