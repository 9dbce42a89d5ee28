package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla/conformance/lines"
)

const (
	transacted = "franz-transacted"
	copied     = "franz-copied"
)

func transactional(id string, options ...kgo.Opt) *kgo.Client {
	return client(append([]kgo.Opt{
		kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(transacted),
	}, options...)...)
}

func inTransaction(from *kgo.Client, ends kgo.TransactionEndTry, partition int32, values ...string) error {
	if err := from.BeginTransaction(); err != nil {
		return err
	}
	for _, value := range values {
		record := &kgo.Record{Partition: partition, Value: []byte(value)}
		if err := from.ProduceSync(patiently(), record).FirstErr(); err != nil {
			return err
		}
	}
	return from.EndTransaction(patiently(), ends)
}

// committedIn reads a partition once its committed end is there: markers follow the answer to the producer.
func committedIn(partition int32, end int64) (any, error) {
	deadline := time.Now().Add(lines.Patience)
	var found kadm.ListedOffsets
	for {
		listed, err := admin.ListCommittedOffsets(patiently(), transacted)
		if err != nil {
			return nil, err
		}
		found = listed
		if one, _ := found.Lookup(transacted, partition); one.Offset >= end {
			break
		}
		if time.Now().After(deadline) {
			lines.GiveUp(fmt.Sprintf("partition %d is not committed up to %d", partition, end))
		}
		time.Sleep(20 * time.Millisecond)
	}
	last, _ := found.Lookup(transacted, partition)
	reader := client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{transacted: {partition: kgo.NewOffset().AtStart()}}))
	defer reader.Close()
	shown := []any{}
	for next := int64(0); next < last.Offset && time.Now().Before(deadline); {
		fetches := reader.PollFetches(patiently())
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			next = record.Offset + 1
			if record.Attrs.IsControl() {
				shown = append(shown, []any{record.Offset, "marker"})
			} else {
				shown = append(shown, []any{record.Offset, string(record.Value)})
			}
		})
	}
	return []any{shown, last.Offset}, nil
}

func transactions() {
	lines.Step("create for transactions", func() (any, error) {
		found, err := admin.CreateTopics(patiently(), 2, 1, nil, transacted, copied)
		return []any{name(found[transacted].Err), name(found[copied].Err)}, err
	})
	lines.Settle()
	lines.Step("transactions committed and aborted", func() (any, error) {
		one := transactional("franz-ended")
		defer one.Close()
		for i := range 6 {
			ends := kgo.TryCommit
			if i%3 == 1 {
				ends = kgo.TryAbort
			}
			if err := inTransaction(one, ends, 0, fmt.Sprintf("a-%d", i), fmt.Sprintf("b-%d", i)); err != nil {
				return nil, err
			}
		}
		return committedIn(0, 18)
	})
	lines.Step("an empty transaction, and an open one", func() (any, error) {
		one := transactional("franz-open")
		defer one.Close()
		if err := inTransaction(one, kgo.TryCommit, 1); err != nil {
			return nil, err
		}
		if err := one.BeginTransaction(); err != nil {
			return nil, err
		}
		record := &kgo.Record{Partition: 1, Value: []byte("open")}
		if err := one.ProduceSync(patiently(), record).FirstErr(); err != nil {
			return nil, err
		}
		meanwhile, err := admin.ListCommittedOffsets(patiently(), transacted)
		if err != nil {
			return nil, err
		}
		while, _ := meanwhile.Lookup(transacted, 1)
		if err := one.EndTransaction(patiently(), kgo.TryCommit); err != nil {
			return nil, err
		}
		after, err := committedIn(1, 2)
		return []any{while.Offset, after}, err
	})
	lines.Step("a fenced transaction", func() (any, error) {
		older := transactional("franz-fenced")
		defer older.Close()
		if err := older.BeginTransaction(); err != nil {
			return nil, err
		}
		record := &kgo.Record{Partition: 1, Value: []byte("fenced")}
		if err := older.ProduceSync(patiently(), record).FirstErr(); err != nil {
			return nil, err
		}
		newer := transactional("franz-fenced")
		defer newer.Close()
		if err := inTransaction(newer, kgo.TryCommit, 1, "of the newer"); err != nil {
			return nil, err
		}
		late := older.EndTransaction(patiently(), kgo.TryCommit)
		after, err := committedIn(1, 6)
		return []any{name(late), after}, err
	})
	lines.Step("consume, transform and produce", func() (any, error) {
		session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID("franz-session"),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(copied),
			kgo.ConsumerGroup("franz-transacted"), kgo.ConsumeTopics(transacted), kgo.RequireStableFetchOffsets(),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.MetadataMinAge(100*time.Millisecond))
		if err != nil {
			return nil, err
		}
		defer session.Close()
		taken := 0
		for taken < 10 {
			fetches := session.PollFetches(patiently())
			if err := fetches.Err(); err != nil {
				return nil, err
			}
			taken += fetches.NumRecords()
			if err := session.Begin(); err != nil {
				return nil, err
			}
			if err := session.ProduceSync(patiently(), &kgo.Record{Value: []byte("copied")}).FirstErr(); err != nil {
				return nil, err
			}
			ended, err := session.End(patiently(), kgo.TryCommit)
			if err != nil || !ended {
				return ended, err
			}
		}
		// The markers follow the answer to the producer here, too; an offset of an earlier transaction is not stable until then.
		deadline := time.Now().Add(lines.Patience)
		for {
			found, err := admin.FetchOffsets(kadm.RequireStable(patiently()), "franz-transacted")
			first, _ := found.Lookup(transacted, 0)
			second, _ := found.Lookup(transacted, 1)
			if err != nil || first.Err == nil && second.Err == nil && first.At > 0 && second.At > 0 {
				return []any{first.At, second.At}, err
			}
			if time.Now().After(deadline) {
				lines.GiveUp("the offsets are not committed")
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}
