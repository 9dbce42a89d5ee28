// Command sarama is Sarama's conformance script: `sarama BOOTSTRAP`.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"ottla/conformance/lines"
)

const topic = "sarama-main"

var (
	bootstrap []string
	admin     sarama.ClusterAdmin
	client    sarama.Client
)

func main() {
	bootstrap = os.Args[1:2]
	sarama.Logger = log.New(io.Discard, "", 0)
	var err error
	if admin, err = sarama.NewClusterAdmin(bootstrap, config()); err != nil {
		panic(err)
	}
	if client, err = sarama.NewClient(bootstrap, config()); err != nil {
		panic(err)
	}
	topics()
	produce()
	consume()
	offsets()
	groups()
	commits()
	settings()
	deletion()
	admin.Close()
	client.Close()
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "sarama"
	made.Version = sarama.MaxVersion
	made.Admin.Timeout = lines.Patience
	made.Producer.Return.Successes = true
	made.Producer.Return.Errors = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Consumer.Return.Errors = true
	made.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	made.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	return made
}

// ---- topics --------------------------------------------------------------------------------------------------------

func pointer(text string) *string { return &text }

func topics() {
	cases := []struct {
		what, name string
		detail     sarama.TopicDetail
	}{
		{"main", topic, sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1,
			ConfigEntries: map[string]*string{"retention.ms": pointer("-1")}}},
		{"defaults", "sarama-defaults", sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1}},
		{"assigned", "sarama-assigned", sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1,
			ReplicaAssignment: map[int32][]int32{0: {1}, 1: {1}}}},
		{"exists", topic, sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}},
		{"bad name", "sarama/slash", sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}},
		{"too many replicas", "sarama-three", sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}},
		{"bad setting", "sarama-bad", sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1,
			ConfigEntries: map[string]*string{"retention.ms": pointer("soon")}}},
	}
	for _, one := range cases {
		lines.Step("create "+one.what, func() (any, error) {
			return nil, admin.CreateTopic(one.name, &one.detail, false)
		})
	}
	lines.Settle()
	lines.Step("describe topics", func() (any, error) {
		found, err := admin.DescribeTopics([]string{topic, "sarama-assigned", "sarama-nobody"})
		shown := map[string]any{}
		for _, one := range found {
			partitions := []any{}
			sort.Slice(one.Partitions, func(i, j int) bool { return one.Partitions[i].ID < one.Partitions[j].ID })
			for _, p := range one.Partitions {
				partitions = append(partitions, []any{p.ID, p.Leader, p.LeaderEpoch, p.Replicas, p.Isr, p.OfflineReplicas})
			}
			shown[one.Name] = []any{one.Err.Error(), one.IsInternal, partitions}
		}
		return shown, err
	})
	lines.Step("list topics", func() (any, error) { return names() })
	lines.Step("describe cluster", func() (any, error) {
		brokers, controller, err := admin.DescribeCluster()
		ids := []int32{}
		for _, broker := range brokers {
			ids = append(ids, broker.ID())
		}
		return []any{ids, controller}, err
	})
}

func names() ([]string, error) {
	found, err := admin.ListTopics()
	own := []string{}
	for one := range found {
		if strings.HasPrefix(one, "sarama") {
			own = append(own, one)
		}
	}
	sort.Strings(own)
	return own, err
}

// ---- records -------------------------------------------------------------------------------------------------------

func produce() {
	acks := []struct {
		name string
		acks sarama.RequiredAcks
	}{{"1", sarama.WaitForLocal}, {"all", sarama.WaitForAll}, {"0", sarama.NoResponse}}
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, ack := range acks {
		for _, codec := range codecs {
			var partition int32
			if ack.name == "0" {
				partition = 1
			}
			lines.Step("produce acks="+ack.name+" "+codec.String(), func() (any, error) {
				settings := config()
				settings.Producer.RequiredAcks = ack.acks
				settings.Producer.Compression = codec
				return send(settings, topic, partition, 10)
			})
		}
	}
	lines.Step("produce idempotently", func() (any, error) {
		settings := config()
		settings.Producer.Idempotent = true
		settings.Producer.RequiredAcks = sarama.WaitForAll
		settings.Net.MaxOpenRequests = 1
		return send(settings, topic, 2, 20)
	})
	// The formats before record batches come from the versions of that time.
	for _, version := range []sarama.KafkaVersion{sarama.V0_10_2_0, sarama.V0_11_0_0, sarama.V1_0_0_0, sarama.V2_0_0_0} {
		lines.Step("produce as version "+version.String(), func() (any, error) {
			settings := config()
			settings.Version = version
			return send(settings, "sarama-defaults", 0, 3)
		})
	}
	lines.Step("produce over the broker's limit", func() (any, error) {
		settings := config()
		settings.Producer.MaxMessageBytes = 4_000_000
		to, err := sarama.NewSyncProducer(bootstrap, settings)
		if err != nil {
			return nil, err
		}
		defer to.Close()
		_, offset, err := to.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: 2,
			Value: sarama.ByteEncoder(make([]byte, 2_000_000))})
		return offset, err
	})
	lines.Step("produce creates the topic", func() (any, error) {
		// A busy machine needs longer to create it than the client asks otherwise.
		settings := config()
		settings.Metadata.Retry.Max = 200
		return send(settings, "sarama-auto", 0, 1)
	})
}

func send(settings *sarama.Config, topic string, partition int32, count int) (any, error) {
	// All of them are one batch, however long the script is held up meanwhile: a later step shows the size of the log.
	settings.Producer.Flush.Messages = count
	settings.Producer.Flush.Frequency = lines.Patience
	to, err := sarama.NewSyncProducer(bootstrap, settings)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	messages := []*sarama.ProducerMessage{}
	for i := range count {
		key, value, headers, timestamp := lines.Record(i)
		message := &sarama.ProducerMessage{Topic: topic, Partition: partition, Timestamp: timestamp}
		if key != nil {
			message.Key = sarama.ByteEncoder(key)
		}
		if value != nil {
			message.Value = sarama.ByteEncoder(value)
		}
		if settings.Version.IsAtLeast(sarama.V0_11_0_0) {
			for _, header := range headers {
				message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
			}
		}
		messages = append(messages, message)
	}
	if err := to.SendMessages(messages); err != nil {
		return nil, err
	}
	shown := []any{}
	for _, message := range messages {
		offset := any(message.Offset)
		if settings.Producer.RequiredAcks == sarama.NoResponse {
			offset = nil
		}
		shown = append(shown, []any{message.Partition, offset})
	}
	return shown, nil
}

func consume() {
	for partition, expected := range []int{100, 50, 20} {
		lines.Step(fmt.Sprintf("consume partition %d", partition), func() (any, error) {
			return read(config(), topic, int32(partition), sarama.OffsetOldest, expected)
		})
	}
	lines.Step("consume in small pieces", func() (any, error) {
		settings := config()
		settings.Consumer.Fetch.Default = 100
		settings.Consumer.IsolationLevel = sarama.ReadCommitted
		found, err := read(settings, topic, 0, sarama.OffsetOldest, 100)
		return len(found), err
	})
	for _, version := range []sarama.KafkaVersion{sarama.V0_11_0_0, sarama.V1_1_0_0, sarama.V2_8_0_0} {
		lines.Step("consume as version "+version.String(), func() (any, error) {
			settings := config()
			settings.Version = version
			return read(settings, topic, 2, sarama.OffsetOldest, 20)
		})
	}
	lines.Step("seek by time", func() (any, error) {
		from, err := client.GetOffset(topic, 0, lines.T0+7000)
		if err != nil {
			return nil, err
		}
		found, err := read(config(), topic, 0, from, 2)
		return []any{from, found}, err
	})
	lines.Step("seek past the end", func() (any, error) { return read(config(), topic, 0, 1000, 1) })
}

func read(settings *sarama.Config, topic string, partition int32, from int64, expected int) ([]any, error) {
	source, err := sarama.NewConsumer(bootstrap, settings)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	reader, err := source.ConsumePartition(topic, partition, from)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	shown := []any{}
	deadline := time.After(lines.Patience)
	for len(shown) < expected {
		select {
		case message := <-reader.Messages():
			headers := []string{}
			for _, header := range message.Headers {
				headers = append(headers, string(header.Key)+"="+lines.Text(header.Value))
			}
			shown = append(shown, []any{message.Offset, message.Timestamp.UnixMilli(), lines.Text(message.Key),
				lines.Checksum(message.Value), headers})
		case err := <-reader.Errors():
			return nil, err
		case <-deadline:
			lines.GiveUp(fmt.Sprintf("%d of %d records were read", len(shown), expected))
		}
	}
	return shown, nil
}

func offsets() {
	asked := []struct {
		what string
		time int64
	}{{"earliest", sarama.OffsetOldest}, {"latest", sarama.OffsetNewest}, {"between", lines.T0 + 4500},
		{"after all", lines.T0 + 1_000_000}}
	for _, one := range asked {
		lines.Step("offsets "+one.what, func() (any, error) {
			shown := []int64{}
			for partition := range int32(3) {
				offset, err := client.GetOffset(topic, partition, one.time)
				if err != nil {
					return nil, err
				}
				shown = append(shown, offset)
			}
			return shown, nil
		})
	}
}

// ---- groups --------------------------------------------------------------------------------------------------------

type member struct {
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	done   chan struct{}
	mutex  sync.Mutex
	held   []int32
	onHeld func(sarama.ConsumerGroupSession)
}

func join(group string, strategy sarama.BalanceStrategy, instance string) (*member, error) {
	settings := config()
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	settings.Consumer.Group.InstanceId = instance
	made, err := sarama.NewConsumerGroup(bootstrap, group, settings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	one := &member{group: made, cancel: cancel, done: make(chan struct{})}
	go func() {
		for range made.Errors() {
		}
	}()
	go func() {
		defer close(one.done)
		for ctx.Err() == nil {
			if made.Consume(ctx, []string{topic}, one) != nil {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}()
	return one, nil
}

// Setup is called by Sarama when a generation begins.
func (one *member) Setup(session sarama.ConsumerGroupSession) error {
	one.mutex.Lock()
	one.held = session.Claims()[topic]
	one.mutex.Unlock()
	return nil
}

// Cleanup is called by Sarama when a generation ends.
func (one *member) Cleanup(sarama.ConsumerGroupSession) error {
	one.mutex.Lock()
	one.held = nil
	one.mutex.Unlock()
	return nil
}

// ConsumeClaim is called by Sarama for each partition held.
func (one *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if one.onHeld != nil && claim.Partition() == 0 {
		one.onHeld(session)
	}
	for range claim.Messages() {
	}
	return nil
}

func (one *member) leave() {
	one.cancel()
	<-one.done
	one.group.Close()
}

func settled(members []*member, partitions int) any {
	calm, last := 0, ""
	for end := time.Now().Add(lines.Patience); time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		sizes, total, different := []int{}, 0, map[int32]bool{}
		for _, one := range members {
			one.mutex.Lock()
			sizes = append(sizes, len(one.held))
			total += len(one.held)
			for _, partition := range one.held {
				different[partition] = true
			}
			one.mutex.Unlock()
		}
		sort.Ints(sizes)
		now := fmt.Sprint(sizes)
		if total == partitions && len(different) == partitions && sizes[0] >= partitions/len(members) && now == last {
			calm++
		} else {
			calm = 0
		}
		last = now
		if calm >= 3 {
			return sizes
		}
	}
	lines.GiveUp("the group does not settle: " + last)
	return nil
}

func groupShown(group string) (any, error) {
	found, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return nil, err
	}
	one := found[0]
	members := []string{}
	for _, member := range one.Members {
		instance := "-"
		if member.GroupInstanceId != nil {
			instance = *member.GroupInstanceId
		}
		members = append(members, member.ClientId+" "+instance+" "+member.ClientHost)
	}
	sort.Strings(members)
	return []any{one.State, one.ProtocolType, one.Protocol, members, one.Err.Error()}, nil
}

func groups() {
	strategies := []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange(), sarama.NewBalanceStrategyRoundRobin(),
		sarama.NewBalanceStrategySticky()}
	for _, strategy := range strategies {
		group := "sarama-" + strategy.Name()
		var members []*member
		add := func(instance string) func() (any, error) {
			return func() (any, error) {
				one, err := join(group, strategy, instance)
				if err != nil {
					return nil, err
				}
				members = append(members, one)
				return settled(members, 3), nil
			}
		}
		lines.Step("group "+strategy.Name()+": first member", add(""))
		lines.Step("group "+strategy.Name()+": second member", add(""))
		lines.Step("group "+strategy.Name()+": a member with a name of its own", add("sarama-static"))
		lines.Step("group "+strategy.Name()+": described", func() (any, error) { return groupShown(group) })
		lines.Step("group "+strategy.Name()+": first member leaves", func() (any, error) {
			members[0].leave()
			return settled(members[1:], 3), nil
		})
		lines.Step("group "+strategy.Name()+": all leave", func() (any, error) {
			members[2].leave()
			members[1].leave()
			return groupShown(group)
		})
	}
}

func commits() {
	const group = "sarama-committing"
	committed := func() (any, error) {
		found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
		shown := []any{}
		for partition := range int32(3) {
			if block := found.GetBlock(topic, partition); block != nil {
				shown = append(shown, []any{partition, block.Offset, block.LeaderEpoch, block.Metadata, block.Err.Error()})
			}
		}
		return shown, err
	}
	lines.Step("commit", func() (any, error) {
		one, err := join(group, sarama.NewBalanceStrategyRange(), "")
		if err != nil {
			return nil, err
		}
		committed := make(chan struct{})
		var once sync.Once
		one.onHeld = func(session sarama.ConsumerGroupSession) {
			once.Do(func() {
				session.MarkOffset(topic, 0, 7, "seven")
				session.MarkOffset(topic, 1, 3, "")
				session.Commit()
				close(committed)
			})
		}
		select {
		case <-committed:
		case <-time.After(lines.Patience):
			lines.GiveUp("nothing was committed")
		}
		one.leave()
		return nil, nil
	})
	lines.Step("list committed offsets", committed)
	lines.Step("list groups", func() (any, error) {
		found, err := admin.ListConsumerGroups()
		shown := []string{}
		for group, kind := range found {
			if strings.HasPrefix(group, "sarama") {
				shown = append(shown, group+" "+kind)
			}
		}
		sort.Strings(shown)
		return shown, err
	})
	lines.Step("delete committed offsets", func() (any, error) {
		if err := admin.DeleteConsumerGroupOffset(group, topic, 1); err != nil {
			return nil, err
		}
		return committed()
	})
	lines.Step("delete group", func() (any, error) { return nil, admin.DeleteConsumerGroup(group) })
	lines.Step("delete unknown group", func() (any, error) { return nil, admin.DeleteConsumerGroup("sarama-nobody") })
	lines.Step("describe unknown group", func() (any, error) { return groupShown("sarama-nobody") })
}

// ---- settings, partitions, deletion --------------------------------------------------------------------------------

func settings() {
	shown := func() (any, error) {
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
		set := map[string]any{}
		for _, one := range found {
			if lines.IsSinceKafka44(one.Name) {
				continue
			}
			value := one.Value
			if one.Source == sarama.SourceStaticBroker {
				value = "-"
			}
			set[one.Name] = []any{value, one.Source.String(), one.ReadOnly, one.Sensitive, len(one.Synonyms)}
		}
		return set, err
	}
	lines.Step("describe topic settings", shown)
	changes := []struct {
		what  string
		key   string
		entry sarama.IncrementalAlterConfigsEntry
	}{
		{"set", "segment.ms", sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: pointer("3600000")}},
		{"append", "cleanup.policy", sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: pointer("compact")}},
		{"delete", "cleanup.policy", sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationDelete}},
		{"no number", "segment.ms", sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: pointer("later")}},
	}
	for _, one := range changes {
		lines.Step("alter "+one.what, func() (any, error) {
			err := admin.IncrementalAlterConfig(sarama.TopicResource, topic,
				map[string]sarama.IncrementalAlterConfigsEntry{one.key: one.entry}, false)
			if err != nil {
				return nil, err
			}
			lines.Settle()
			return shown()
		})
	}
	lines.Step("alter all settings at once", func() (any, error) {
		err := admin.AlterConfig(sarama.TopicResource, topic,
			map[string]*string{"retention.ms": pointer("-1"), "max.message.bytes": pointer("2000")}, false)
		if err != nil {
			return nil, err
		}
		lines.Settle()
		return shown()
	})
}

func deletion() {
	for _, total := range []int32{5, 2} {
		lines.Step(fmt.Sprintf("create partitions to %d", total), func() (any, error) {
			return nil, admin.CreatePartitions(topic, total, nil, false)
		})
	}
	lines.Settle()
	for _, before := range []int64{5, 1000} {
		lines.Step(fmt.Sprintf("delete records before %d", before), func() (any, error) {
			if err := admin.DeleteRecords(topic, map[int32]int64{1: before}); err != nil {
				return nil, err
			}
			return client.GetOffset(topic, 1, sarama.OffsetOldest)
		})
	}
	lines.Step("log directories", func() (any, error) {
		found, err := admin.DescribeLogDirs([]int32{1})
		shown := []string{}
		for _, dir := range found[1] {
			for _, one := range dir.Topics {
				for _, partition := range one.Partitions {
					if strings.HasPrefix(one.Topic, "sarama") {
						shown = append(shown, fmt.Sprint(one.Topic, " ", partition.PartitionID, " ", partition.Size, " ",
							partition.OffsetLag, " ", partition.IsTemporary))
					}
				}
			}
		}
		sort.Strings(shown)
		return shown, err
	})
	for _, name := range []string{"sarama-auto", "sarama-nobody"} {
		lines.Step("delete "+name, func() (any, error) { return nil, admin.DeleteTopic(name) })
	}
	lines.Settle()
	lines.Step("topics left", func() (any, error) { return names() })
}
