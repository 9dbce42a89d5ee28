// Command franz is franz-go's conformance script: `franz BOOTSTRAP`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/conformance/lines"
)

const topic = "franz-main"

var (
	bootstrap string
	admin     *kadm.Client
)

func main() {
	bootstrap = os.Args[1]
	admin = kadm.NewClient(client())
	defer admin.Close()
	topics()
	produce()
	consume()
	offsets()
	groups()
	commits()
	transactions()
	settings()
	deletion()
}

func client(options ...kgo.Opt) *kgo.Client {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ClientID("franz"), kgo.RetryTimeout(lines.Patience),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, options...)
	made, err := kgo.NewClient(all...)
	if err != nil {
		panic(err)
	}
	return made
}

func patiently() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), lines.Patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func name(err error) any {
	if err == nil {
		return nil
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func pointer(text string) *string { return &text }

// ---- topics --------------------------------------------------------------------------------------------------------

func topics() {
	cases := []struct {
		what       string
		name       string
		partitions int32
		replicas   int16
		settings   map[string]*string
	}{
		{"main", topic, 3, 1, map[string]*string{"retention.ms": pointer("-1")}},
		{"defaults", "franz-defaults", -1, -1, nil},
		{"exists", topic, 3, 1, nil},
		{"bad name", "franz/slash", 1, 1, nil},
		{"too many replicas", "franz-three", 1, 3, nil},
		{"bad setting", "franz-bad", 1, 1, map[string]*string{"retention.ms": pointer("soon")}},
	}
	for _, one := range cases {
		lines.Step("create "+one.what, func() (any, error) {
			found, err := admin.CreateTopics(patiently(), one.partitions, one.replicas, one.settings, one.name)
			if err != nil {
				return nil, err
			}
			done := found[one.name]
			set := map[string]string{}
			for key, value := range done.Configs {
				if value.Source == kmsg.ConfigSourceDynamicTopicConfig {
					set[key] = *value.Value
				}
			}
			return []any{name(done.Err), done.ErrMessage, done.NumPartitions, done.ReplicationFactor, set}, nil
		})
	}
	lines.Settle()
	lines.Step("describe topics", func() (any, error) {
		found, err := admin.ListTopics(patiently(), topic, "franz-defaults", "franz-nobody")
		shown := map[string]any{}
		for _, one := range found.Sorted() {
			partitions := []any{}
			for _, p := range one.Partitions.Sorted() {
				partitions = append(partitions, []any{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas})
			}
			shown[one.Topic] = []any{name(one.Err), one.IsInternal, partitions}
		}
		return shown, err
	})
	lines.Step("list topics", func() (any, error) { return names() })
	lines.Step("broker metadata", func() (any, error) {
		found, err := admin.BrokerMetadata(patiently())
		return []any{found.Cluster, found.Controller, found.Brokers.NodeIDs()}, err
	})
	lines.Step("api versions", func() (any, error) {
		found, err := admin.ApiVersions(patiently())
		return len(found), err
	})
}

func names() ([]string, error) {
	found, err := admin.ListTopics(patiently())
	own := []string{}
	for _, one := range found.Names() {
		if strings.HasPrefix(one, "franz") {
			own = append(own, one)
		}
	}
	return own, err
}

// ---- records -------------------------------------------------------------------------------------------------------

func produce() {
	acks := []struct {
		name string
		acks kgo.Acks
	}{{"1", kgo.LeaderAck()}, {"all", kgo.AllISRAcks()}, {"0", kgo.NoAck()}}
	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	}
	for _, ack := range acks {
		for _, codec := range codecs {
			var partition int32
			if ack.name == "0" {
				partition = 1
			}
			lines.Step("produce acks="+ack.name+" "+codec.name, func() (any, error) {
				return send(topic, partition, 10, kgo.RequiredAcks(ack.acks), kgo.DisableIdempotentWrite(),
					kgo.ProducerBatchCompression(codec.codec), kgo.ProducerLinger(200*time.Millisecond))
			})
		}
	}
	lines.Step("produce idempotently", func() (any, error) {
		return send(topic, 2, 20, kgo.ProducerLinger(200*time.Millisecond))
	})
	lines.Step("produce over the broker's limit", func() (any, error) {
		to := client(kgo.ProducerBatchMaxBytes(4_000_000), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
		defer to.Close()
		record := &kgo.Record{Topic: topic, Partition: 2, Value: make([]byte, 2_000_000)}
		return nil, to.ProduceSync(patiently(), record).FirstErr()
	})
	lines.Step("produce creates the topic", func() (any, error) {
		// Gives up after four answers without the topic otherwise, sooner than a busy machine has made it.
		return send("franz-auto", 0, 1, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(1000))
	})
}

func send(topic string, partition int32, count int, options ...kgo.Opt) (any, error) {
	to := client(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer to.Close()
	records := []*kgo.Record{}
	for i := range count {
		key, value, headers, timestamp := lines.Record(i)
		record := &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value, Timestamp: timestamp}
		for _, header := range headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		records = append(records, record)
	}
	shown := []any{}
	for _, result := range to.ProduceSync(patiently(), records...) {
		if result.Err != nil {
			return nil, result.Err
		}
		shown = append(shown, []any{result.Record.Partition, result.Record.Offset})
	}
	return shown, nil
}

func consume() {
	for partition, expected := range []int{100, 50, 20} {
		lines.Step(fmt.Sprintf("consume partition %d", partition), func() (any, error) {
			return read(kgo.NewOffset().AtStart(), int32(partition), expected)
		})
	}
	lines.Step("consume in small pieces", func() (any, error) {
		found, err := read(kgo.NewOffset().AtStart(), 0, 100, kgo.FetchMaxBytes(100), kgo.FetchMaxPartitionBytes(100),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		return len(found), err
	})
	lines.Step("seek by time", func() (any, error) {
		return read(kgo.NewOffset().AfterMilli(lines.T0+7000), 0, 2)
	})
	lines.Step("seek past the end", func() (any, error) {
		return read(kgo.NewOffset().At(1000), 0, 1, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	})
	lines.Step("seek past the end without reset", func() (any, error) {
		return read(kgo.NewOffset().At(1000), 0, 1, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	})
}

func read(from kgo.Offset, partition int32, expected int, options ...kgo.Opt) ([]any, error) {
	source := client(append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: from}}))...)
	defer source.Close()
	ctx := patiently()
	shown := []any{}
	for len(shown) < expected {
		fetches := source.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, one := range fetches.Records() {
			headers := []string{}
			for _, header := range one.Headers {
				headers = append(headers, header.Key+"="+lines.Text(header.Value))
			}
			shown = append(shown, []any{one.Offset, one.Timestamp.UnixMilli(), one.Attrs.TimestampType(),
				one.Attrs.CompressionType(), lines.Text(one.Key), lines.Checksum(one.Value), headers, one.LeaderEpoch})
		}
	}
	return shown[:expected], nil
}

func offsets() {
	asked := []struct {
		what string
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
	}{
		{"earliest", admin.ListStartOffsets}, {"latest", admin.ListEndOffsets}, {"committed", admin.ListCommittedOffsets},
		{"max timestamp", admin.ListMaxTimestampOffsets},
		{"between", func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, lines.T0+4500, topics...)
		}},
		{"after all", func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, lines.T0+1_000_000, topics...)
		}},
	}
	for _, one := range asked {
		lines.Step("offsets "+one.what, func() (any, error) {
			found, err := one.list(patiently(), topic)
			shown := []any{}
			for partition := range int32(3) {
				offset, _ := found.Lookup(topic, partition)
				shown = append(shown, []any{offset.Partition, offset.Offset, offset.Timestamp, offset.LeaderEpoch, name(offset.Err)})
			}
			return shown, err
		})
	}
	lines.Step("offset for leader epoch", func() (any, error) {
		request := kadm.OffsetForLeaderEpochRequest{}
		request.Add(topic, 0, 0)
		request.Add(topic, 1, 5)
		found, err := admin.OffetForLeaderEpoch(patiently(), request)
		shown := []any{}
		for partition := range int32(2) {
			one := found[topic][partition]
			shown = append(shown, []any{one.LeaderEpoch, one.EndOffset, name(one.Err)})
		}
		return shown, err
	})
}

// ---- groups --------------------------------------------------------------------------------------------------------

type member struct {
	client *kgo.Client
	cancel context.CancelFunc
	mutex  sync.Mutex
	held   map[int32]bool
}

func join(group string, balancer kgo.GroupBalancer, options ...kgo.Opt) *member {
	one := &member{held: map[int32]bool{}}
	change := func(to bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			one.mutex.Lock()
			defer one.mutex.Unlock()
			for _, partition := range changed[topic] {
				if to {
					one.held[partition] = true
				} else {
					delete(one.held, partition)
				}
			}
		}
	}
	one.client = client(append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(balancer),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	ctx, cancel := context.WithCancel(context.Background())
	one.cancel = cancel
	go func() {
		for ctx.Err() == nil {
			one.client.PollFetches(ctx)
		}
	}()
	return one
}

func (one *member) leave() {
	one.cancel()
	one.client.Close()
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
			for partition := range one.held {
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
	found, err := admin.DescribeGroups(patiently(), group)
	if err != nil {
		return nil, err
	}
	one := found[group]
	members := []string{}
	for _, member := range one.Members {
		instance := "-"
		if member.InstanceID != nil {
			instance = *member.InstanceID
		}
		members = append(members, member.ClientID+" "+instance+" "+member.ClientHost)
	}
	sort.Strings(members)
	return []any{one.State, one.ProtocolType, one.Protocol, one.Coordinator.NodeID, members, name(one.Err)}, nil
}

func groups() {
	balancers := []kgo.GroupBalancer{
		kgo.RangeBalancer(), kgo.RoundRobinBalancer(), kgo.StickyBalancer(), kgo.CooperativeStickyBalancer(),
	}
	for _, balancer := range balancers {
		protocol := balancer.ProtocolName()
		group := "franz-" + protocol
		var members []*member
		add := func(options ...kgo.Opt) func() (any, error) {
			return func() (any, error) {
				members = append(members, join(group, balancer, options...))
				return settled(members, 3), nil
			}
		}
		lines.Step("group "+protocol+": first member", add())
		lines.Step("group "+protocol+": second member", add())
		lines.Step("group "+protocol+": a member with a name of its own", add(kgo.InstanceID("franz-static")))
		lines.Step("group "+protocol+": described", func() (any, error) { return groupShown(group) })
		lines.Step("group "+protocol+": first member leaves", func() (any, error) {
			members[0].leave()
			return settled(members[1:], 3), nil
		})
		lines.Step("group "+protocol+": all leave", func() (any, error) {
			members[2].leave()
			members[1].leave()
			return groupShown(group)
		})
		lines.Step("group "+protocol+": named member removed", func() (any, error) {
			found, err := admin.LeaveGroup(patiently(), kadm.LeaveGroup(group).InstanceIDs("franz-static"))
			if err != nil {
				return nil, err
			}
			shown, err := groupShown(group)
			return []any{name(found["franz-static"].Err), shown}, err
		})
	}
}

func commits() {
	const group = "franz-committing"
	committed := func() (any, error) {
		found, err := admin.FetchOffsets(patiently(), group)
		shown := []any{}
		for _, one := range found.Sorted() {
			metadata := one.Metadata
			if strings.HasPrefix(metadata, "franz-") {
				// The client writes its member id there.
				metadata = "member"
			}
			shown = append(shown, []any{one.Topic, one.Partition, one.At, one.LeaderEpoch, metadata, name(one.Err)})
		}
		return shown, err
	}
	lines.Step("commit", func() (any, error) {
		one := join(group, kgo.RangeBalancer())
		defer one.leave()
		settled([]*member{one}, 3)
		var failed error
		one.client.CommitOffsetsSync(patiently(), map[string]map[int32]kgo.EpochOffset{
			topic: {0: {Epoch: 0, Offset: 7}, 1: {Epoch: -1, Offset: 3}},
		}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) { failed = err })
		return nil, failed
	})
	lines.Step("list committed offsets", committed)
	lines.Step("alter committed offsets", func() (any, error) {
		changed := kadm.Offsets{}
		changed.Add(kadm.Offset{Topic: topic, Partition: 0, At: 2, LeaderEpoch: -1, Metadata: "two"})
		changed.Add(kadm.Offset{Topic: topic, Partition: 2, At: 5, LeaderEpoch: -1})
		found, err := admin.CommitOffsets(patiently(), group, changed)
		if err != nil {
			return nil, err
		}
		shown, err := committed()
		return []any{name(found.Error()), shown}, err
	})
	lines.Step("delete committed offsets", func() (any, error) {
		set := kadm.TopicsSet{}
		set.Add(topic, 2)
		found, err := admin.DeleteOffsets(patiently(), group, set)
		if err != nil {
			return nil, err
		}
		shown, err := committed()
		return []any{name(found.Error()), shown}, err
	})
	lines.Step("list groups", func() (any, error) {
		found, err := admin.ListGroups(patiently())
		shown := []string{}
		for _, one := range found.Sorted() {
			if strings.HasPrefix(one.Group, "franz") {
				shown = append(shown, one.Group+" "+one.ProtocolType+" "+one.State)
			}
		}
		return shown, err
	})
	lines.Step("lag", func() (any, error) {
		found, err := admin.Lag(patiently(), group)
		shown := []any{}
		for _, one := range found[group].Lag.Sorted() {
			shown = append(shown, []any{one.Topic, one.Partition, one.Commit.At, one.Lag})
		}
		return shown, err
	})
	lines.Step("delete groups", func() (any, error) {
		found, err := admin.DeleteGroups(patiently(), group, "franz-nobody")
		if err != nil {
			return nil, err
		}
		return []any{name(found[group].Err), name(found["franz-nobody"].Err)}, nil
	})
	lines.Step("describe unknown group", func() (any, error) { return groupShown("franz-nobody") })
}

// ---- settings, partitions, deletion --------------------------------------------------------------------------------

func settings() {
	shown := func() (any, error) {
		found, err := admin.DescribeTopicConfigs(patiently(), topic)
		if err != nil {
			return nil, err
		}
		one, err := found.On(topic, nil)
		set := map[string]any{}
		for _, config := range one.Configs {
			if lines.IsSinceKafka44(config.Key) {
				continue
			}
			value := config.MaybeValue()
			if config.Source == kmsg.ConfigSourceStaticBrokerConfig {
				value = "-"
			}
			set[config.Key] = []any{value, config.Source.String(), config.Sensitive, len(config.Synonyms)}
		}
		return set, err
	}
	lines.Step("describe topic settings", shown)
	changes := []struct {
		what   string
		change kadm.AlterConfig
	}{
		{"set", kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.ms", Value: pointer("3600000")}},
		{"append", kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: pointer("compact")}},
		{"subtract", kadm.AlterConfig{Op: kadm.SubtractConfig, Name: "cleanup.policy", Value: pointer("delete")}},
		{"delete", kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "cleanup.policy"}},
		{"no number", kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.ms", Value: pointer("later")}},
	}
	for _, one := range changes {
		lines.Step("alter "+one.what, func() (any, error) {
			found, err := admin.AlterTopicConfigs(patiently(), []kadm.AlterConfig{one.change}, topic)
			if err != nil {
				return nil, err
			}
			lines.Settle()
			now, err := shown()
			return []any{name(found[0].Err), found[0].ErrMessage, now}, err
		})
	}
}

func deletion() {
	for _, total := range []int{5, 2} {
		lines.Step(fmt.Sprintf("create partitions to %d", total), func() (any, error) {
			found, err := admin.UpdatePartitions(patiently(), total, topic)
			if err != nil {
				return nil, err
			}
			lines.Settle()
			now, err := admin.ListTopics(patiently(), topic)
			return []any{name(found[topic].Err), found[topic].ErrMessage, len(now[topic].Partitions)}, err
		})
	}
	for _, before := range []int64{5, 3, 1000} {
		lines.Step(fmt.Sprintf("delete records before %d", before), func() (any, error) {
			asked := kadm.Offsets{}
			asked.AddOffset(topic, 1, before, -1)
			found, err := admin.DeleteRecords(patiently(), asked)
			if err != nil {
				return nil, err
			}
			one, _ := found.Lookup(topic, 1)
			return []any{one.LowWatermark, name(one.Err)}, nil
		})
	}
	lines.Step("log directories", func() (any, error) {
		found, err := admin.DescribeAllLogDirs(patiently(), nil)
		shown := []any{}
		for _, broker := range found {
			for _, dir := range broker {
				for _, one := range dir.Topics.Sorted() {
					if strings.HasPrefix(one.Topic, "franz") {
						shown = append(shown, []any{one.Topic, one.Partition, one.Size, one.OffsetLag, one.IsFuture})
					}
				}
			}
		}
		return shown, err
	})
	lines.Step("producers", func() (any, error) {
		found, err := admin.DescribeProducers(patiently(), kadm.TopicsSet{topic: {2: {}}})
		shown := []any{}
		for _, one := range found.SortedProducers() {
			shown = append(shown, []any{one.Topic, one.Partition, one.ProducerEpoch, one.LastSequence, one.CurrentTxnStartOffset})
		}
		return shown, err
	})
	lines.Step("delete topics", func() (any, error) {
		found, err := admin.DeleteTopics(patiently(), "franz-auto", "franz-nobody")
		if err != nil {
			return nil, err
		}
		lines.Settle()
		left, err := names()
		return []any{name(found["franz-auto"].Err), name(found["franz-nobody"].Err), left}, err
	})
}
