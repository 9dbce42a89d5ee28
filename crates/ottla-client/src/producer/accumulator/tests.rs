use super::*;
use ottla_records::Compression;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::producer::sequences::Refusal;

const IDENTITY: Identity = Identity {
    id: ProducerId(1),
    epoch: ProducerEpoch(0),
};

fn rules() -> BatchRules {
    BatchRules {
        batch_size: 1000,
        linger: Duration::from_millis(5),
        compression: Compression::None,
        ignore_keys: false,
        is_adaptive: true,
        keeps_tags: false,
        is_transactional: false,
        one_in_flight: false,
    }
}

fn accumulator(rules: BatchRules, partitions: usize) -> Accumulator {
    let accumulator = Accumulator::new(rules, BufferPool::new(10_000, rules.batch_size));
    accumulator.topics.set_partitions("t", partitions);
    accumulator
}

fn append(accumulator: &Accumulator, partition: Option<i32>, value: &[u8]) -> Appended<Delivery> {
    let record = RecordRef {
        partition,
        ..RecordRef::new("t", value)
    };
    let topic = accumulator.topics.get("t").unwrap();
    let appended = accumulator.append(topic, &record, 1, AwaitDelivery, &mut None);
    appended.ok().expect("there is memory")
}

fn ready(accumulator: &Accumulator, now: Instant) -> Ready {
    ready_in_epoch(accumulator, now, 0)
}

fn ready_in_epoch(accumulator: &Accumulator, now: Instant, epoch: i32) -> Ready {
    let leader = |_: &str, partition: i32| {
        Some(Leader {
            node: partition % 2,
            epoch,
        })
    };
    accumulator.ready(now, false, leader, |_| true)
}

#[test]
fn a_batch_lingers_unless_it_is_full() {
    let accumulator = accumulator(rules(), 2);
    let now = Instant::now();
    assert!(append(&accumulator, Some(0), &[0; 100]).is_news);
    assert!(!append(&accumulator, Some(0), &[0; 100]).is_news);
    // The appends themselves may take long.
    let appended = Instant::now();
    let first = ready(&accumulator, now);
    let longest = Duration::from_millis(6) + (appended - now);
    assert!(first.nodes.is_empty() && first.next_check.unwrap() <= longest);
    let later = ready(&accumulator, appended + Duration::from_millis(20));
    assert_eq!(later.nodes.keys().copied().collect::<Vec<_>>(), [0]);
    while append(&accumulator, Some(1), &[0; 100]).is_news || accumulator_has_one(&accumulator) {}
    assert!(ready(&accumulator, now).nodes.contains_key(&1));
    // The flush waits for both.
    let (_guard, incomplete) = accumulator.begin_flush();
    assert_eq!(incomplete.len(), 3);
    assert_eq!(ready(&accumulator, now).nodes.len(), 2);
}

fn accumulator_has_one(accumulator: &Accumulator) -> bool {
    let topic = accumulator.topics.get("t").unwrap();
    topic.partitions[1].state.lock().batches.len() == 1
}

/// KIP-951.
#[test]
fn a_refused_batch_waits_only_for_the_leader_that_refused_it() {
    let accumulator = accumulator(rules(), 1);
    let now = Instant::now() + Duration::from_secs(1);
    append(&accumulator, Some(0), &[0; 100]);
    append(&accumulator, Some(0), &[0; 1000]);
    let queues = &accumulator.topics.get("t").unwrap().partitions;
    let drain = || accumulator.drain(queues, 0, usize::MAX, None, now, |_| true);
    let sent = [drain(), drain()];
    for (queue, mut batch) in sent.into_iter().flatten().rev() {
        batch.leader_epoch = 3;
        batch.waits_until = now + Duration::from_millis(100);
        queue.state.lock().on_wire -= 1;
        accumulator.put_back(&queue, batch);
    }
    let of_same = ready_in_epoch(&accumulator, now, 3);
    assert!(of_same.nodes.is_empty() && of_same.next_check.is_some());
    assert!(drain().is_empty());
    let of_newer = ready_in_epoch(&accumulator, now, 4);
    assert_eq!(of_newer.nodes.keys().copied().collect::<Vec<_>>(), [0]);
    assert_eq!([drain().len(), drain().len()], [1, 1], "both go at once");
}

#[test]
fn appends_wait_for_memory() {
    let accumulator = accumulator(rules(), 1);
    let mut taken = 0;
    let refused = loop {
        let record = RecordRef {
            partition: Some(0),
            ..RecordRef::new("t", &[0; 900])
        };
        let topic = accumulator.topics.get("t").unwrap();
        match accumulator.append(topic, &record, 1, Tagged(0), &mut None) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(taken, 10);
    assert!(matches!(refused, Refused::NoMemory { bytes: 1000, .. }));
}

/// Three batches are sent; the first is lost, the second is refused as out of order. They are
/// retried in order.
#[test]
fn retried_batches_are_sent_in_order() {
    let accumulator = accumulator(rules(), 1);
    for number in 0..3 {
        append(&accumulator, Some(0), &[number; 900]);
    }
    let now = Instant::now();
    let topic = accumulator.topics.get("t").unwrap();
    let drain = || {
        let mut drained =
            accumulator.drain(&topic.partitions, 0, 1 << 20, Some(IDENTITY), now, |_| true);
        drained.pop().map(|(_, batch)| batch)
    };
    // The broker must know the producer before several batches are in flight.
    append(&accumulator, Some(0), &[0; 900]);
    let known = drain().unwrap();
    assert!(drain().is_none());
    let queue = &topic.partitions[0];
    queue
        .state
        .lock()
        .sequences
        .on_written(known.ticket.unwrap());
    let batches: Vec<ProducerBatch> = (0..3).map_while(|_| drain()).collect();
    assert_eq!(batches.len(), 3);
    assert!(drain().is_none());
    let tickets: Vec<_> = batches.iter().map(|batch| batch.ticket.unwrap()).collect();
    {
        let state = queue.state.lock();
        let code = ErrorCode::OutOfOrderSequenceNumber;
        assert_eq!(
            state.sequences.judge(tickets[1], code, false),
            Refusal::Early
        );
    }
    for batch in batches.into_iter().rev() {
        accumulator.put_back(queue, batch);
    }
    append(&accumulator, Some(0), &[3; 900]);
    // Only the first one can be sent until it is completed.
    let first = drain().expect("the first");
    assert_eq!(first.ticket, Some(tickets[0]));
    assert!(drain().is_none());
    queue.state.lock().sequences.on_written(tickets[0]);
    assert_eq!(drain().expect("the second").ticket, Some(tickets[1]));
}

#[test]
fn a_split_batch_keeps_its_place_and_its_records() {
    let accumulator = accumulator(rules(), 1);
    for number in 0..10 {
        append(&accumulator, Some(0), &[number; 80]);
    }
    append(&accumulator, Some(0), &[10; 900]);
    let now = Instant::now();
    let topic = accumulator.topics.get("t").unwrap();
    let queue = &topic.partitions[0];
    let drain = || {
        let drained =
            accumulator.drain(&topic.partitions, 0, 1 << 20, Some(IDENTITY), now, |_| true);
        drained.into_iter().next().map(|(_, batch)| batch)
    };
    let mut large = drain().unwrap();
    assert!(accumulator.put_back_split(queue, &mut large, Some(IDENTITY), now));
    let mut counts = Vec::new();
    while let Some(part) = drain() {
        counts.push(part.record_count);
        queue
            .state
            .lock()
            .sequences
            .on_written(part.ticket.unwrap());
    }
    assert_eq!(counts.iter().sum::<u32>(), 11);
    assert!(counts.len() >= 3 && counts.last() == Some(&1), "{counts:?}");
}

#[test]
fn keys_select_partitions_unless_ignored() {
    for ignore_keys in [false, true] {
        let accumulator = accumulator(
            BatchRules {
                ignore_keys,
                ..rules()
            },
            50,
        );
        for number in 0..200u32 {
            let record = RecordRef {
                key: Some(&number.to_be_bytes()),
                ..RecordRef::new("t", b"v")
            };
            let topic = accumulator.topics.get("t").unwrap();
            let _ = accumulator.append(topic, &record, 1, AwaitDelivery, &mut None);
        }
        let topic = accumulator.topics.get("t").unwrap();
        let filled = topic
            .partitions
            .iter()
            .filter(|queue| !queue.state.lock().batches.is_empty())
            .count();
        // The memory allows ten batches. The sticky partitioner fills them one by one.
        assert_eq!(filled > 7, !ignore_keys, "{filled}");
    }
}
