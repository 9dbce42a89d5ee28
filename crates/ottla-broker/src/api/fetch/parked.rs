//! A fetch that waits at its partitions until they have enough for it.
//!
//! It registers with each of them once. An append that can be read wakes it with the place of the
//! partition in the request. It then registers there again, and looks how much this one partition
//! has by now; the rest of the request is left alone. So an append costs the same however many
//! partitions a request waits at. Everything is read once, when the sum is enough.
//!
//! Kafka: `DelayedFetch`, which adds up the sizes of all partitions for each append.

use ottla_partition::partition::{Isolation, Partition, Registration, Waiter, Waiters};
use ottla_protocol::Records;
use ottla_types::Offset;

use super::read::{ReadLimits, ReadOutcome, Wanted};

/// A request that is registered with its partitions. Deregisters when dropped.
pub(super) struct Parked<'a> {
    waiter: Waiter,
    limits: ReadLimits,
    targets: &'a [Wanted],
    /// One per target.
    places: Vec<ParkedPartition>,
    /// The sum over all places.
    bytes: u64,
}

#[derive(Default)]
struct ParkedPartition {
    /// `None` if the request does not wait for it, or was woken by it.
    registered: Option<Registration>,
    /// The bytes that the partition had for the request at the last check.
    bytes: u64,
}

impl<'a> Parked<'a> {
    /// Registers with all partitions.
    pub(super) fn new(targets: &'a [Wanted], limits: ReadLimits) -> Self {
        let mut parked = Parked {
            waiter: Waiter::default(),
            limits,
            targets,
            places: targets.iter().map(|_| ParkedPartition::default()).collect(),
            bytes: 0,
        };
        for place in 0..targets.len() {
            parked.register(place);
        }
        parked
    }

    /// Everything has been read, and it was not enough.
    pub(super) fn on_read(&mut self, outcome: &ReadOutcome) {
        let answers = outcome.answers.iter();
        let sizes = answers.map(|answer| answer.records.as_ref().map_or(0, Records::len));
        let sizes = sizes.chain(std::iter::repeat(0));
        for (place, bytes) in self.places.iter_mut().zip(sizes) {
            place.bytes = bytes;
        }
        for &(place, bytes) in &outcome.too_large {
            self.places[place].bytes = bytes;
        }
        self.bytes = self.places.iter().map(|place| place.bytes).sum();
    }

    /// Waits until a partition has woken the request or the wait is over. Returns whether it is over,
    /// which is looked at first: appends that never are enough must not prolong it.
    pub(super) async fn is_over(&self, over: impl Future<Output = ()>) -> bool {
        ottla_sync::select! {
            biased;
            () = over => true,
            () = self.waiter.notified() => false,
        }
    }

    /// Looks at the partitions that have woken the request. Returns whether everything has to be
    /// read, because there may be `min_bytes`, or another reason to answer.
    pub(super) fn look(&mut self, min_bytes: u64) -> bool {
        let mut is_due = false;
        for place in self.waiter.take_woken() {
            // Registers first, so that no append is missed.
            self.register(place);
            let wanted = &self.targets[place];
            is_due |= wanted.is_decided_by_now();
            // A single record is enough for most requests, and is about to be read anyway. But most
            // appends of a transaction cannot be read before its end.
            let may_be_undecided = self.limits.isolation == Isolation::LastStableOffset;
            let readable = match min_bytes <= 1 && !may_be_undecided {
                true => None,
                false => wanted.readable_bytes(self.limits),
            };
            match readable {
                Some(bytes) => {
                    let before = std::mem::replace(&mut self.places[place].bytes, bytes);
                    self.bytes = self.bytes - before + bytes;
                }
                None => is_due = true,
            }
        }
        is_due || self.bytes >= min_bytes
    }

    /// Registers to be woken when the partition can be read further than now.
    fn register(&mut self, place: usize) {
        let wanted = &self.targets[place];
        // Throttled partitions return nothing, so the request does not wait for them.
        let (Ok(partition), false) = (&wanted.target, wanted.is_held_back) else {
            return;
        };
        let readable_end = self.limits.isolation.upper_bound(&partition.reader());
        let needed = match wanted.undecided {
            None => Offset(wanted.requested.fetch_offset).max(readable_end),
            // More records do not help.
            Some(_) => Offset(i64::MAX),
        };
        let waiters = waiters_of(partition, self.limits.isolation);
        let registered = waiters.register_place(needed, &self.waiter, place);
        self.places[place].registered = Some(registered);
    }
}

/// The waiters that are woken when a partition can be read further.
fn waiters_of(partition: &Partition, isolation: Isolation) -> &Waiters {
    match isolation {
        Isolation::HighWatermark | Isolation::LastStableOffset => &partition.waiters,
        Isolation::LogEnd => &partition.followers,
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        for (wanted, place) in self.targets.iter().zip(&mut self.places) {
            if let (Ok(partition), Some(registered)) = (&wanted.target, place.registered.take()) {
                waiters_of(partition, self.limits.isolation).take_out(registered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::{Lookup, read_all};
    use super::*;
    use crate::tests::{Node, create, produce};
    use ottla_protocol::messages::fetch_request::FetchPartition;
    use ottla_types::ErrorCode;

    const LIMITS: ReadLimits = ReadLimits {
        isolation: Isolation::HighWatermark,
        max_bytes: 100_000,
        only_from_leader: true,
    };

    fn wanted(node: &Node, index: i32, is_held_back: bool) -> Wanted {
        Wanted {
            target: Ok(node.partition(index)),
            requested: FetchPartition {
                partition: index,
                partition_max_bytes: 50_000,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                ..Default::default()
            },
            is_held_back,
            undecided: None,
        }
    }

    #[tokio::test]
    async fn an_expired_wait_ends_although_an_append_woke_it() {
        let parked = Parked::new(&[], LIMITS);
        let waiters = Waiters::default();
        let _registered = waiters.register(Offset(0), &parked.waiter);
        waiters.wake_all();
        assert!(parked.is_over(std::future::ready(())).await);
        assert!(!parked.is_over(std::future::pending()).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn appends_of_an_open_transaction_do_not_cause_a_full_read() {
        let node = Node::start(&[]).await;
        let mut client = node.connect().await;
        create(&mut client, 1).await;
        let targets = [wanted(&node, 0, false)];
        let limits = ReadLimits {
            isolation: Isolation::LastStableOffset,
            ..LIMITS
        };
        let mut parked = Parked::new(&targets, limits);
        // As such an append does: the high watermark advances, and the last stable offset does not.
        node.partition(0).waiters.on_end_moved(Offset(1));
        parked.waiter.notified().await;
        assert!(!parked.look(1));
        assert_eq!(produce(&mut client, 0, "a").await, ErrorCode::None);
        parked.waiter.notified().await;
        assert!(parked.look(1));
    }

    /// Case F of Kafka's `DelayedFetch`. It is no reason for requests at the end of the log.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_is_due_when_its_segment_is_closed() {
        let node = Node::start(&[]).await;
        let mut client = node.connect().await;
        create(&mut client, 1).await;
        // Each fills most of a segment.
        let value = "a".repeat(600_000);
        assert_eq!(produce(&mut client, 0, &value).await, ErrorCode::None);
        let [behind, at_end] = [0, 1].map(|fetch_offset| {
            let mut wanted = wanted(&node, 0, false);
            wanted.requested.fetch_offset = fetch_offset;
            [wanted]
        });
        let waiting = [Parked::new(&behind, LIMITS), Parked::new(&at_end, LIMITS)];
        assert_eq!(produce(&mut client, 0, &value).await, ErrorCode::None);
        let mut is_due = Vec::new();
        for mut parked in waiting {
            parked.waiter.notified().await;
            is_due.push(parked.look(10_000_000));
        }
        assert_eq!(is_due, [true, false]);
    }

    /// Kafka cuts the first batch of a partition at the size limit of the response, and counts the
    /// part that fits.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_batch_that_does_not_fit_counts_with_the_part_that_fits() {
        let node = Node::start(&[]).await;
        let mut client = node.connect().await;
        create(&mut client, 3).await;
        for index in 0..2 {
            assert_eq!(produce(&mut client, index, "a").await, ErrorCode::None);
        }
        let targets = [
            wanted(&node, 0, false),
            wanted(&node, 1, false),
            wanted(&node, 2, false),
        ];
        let read = |max_bytes| {
            let limits = ReadLimits {
                max_bytes,
                ..LIMITS
            };
            let mut outcome = ReadOutcome::new(3);
            assert!(read_all(&targets, limits, Lookup::Cached, &mut outcome).is_none());
            (outcome, limits)
        };
        let both = read(100_000).0;
        let one = both.bytes / 2;
        assert_eq!((both.bytes, both.counted_bytes()), (2 * one, 2 * one));
        let (full, _) = read(one);
        assert_eq!((full.bytes, full.counted_bytes()), (one, one));
        let (cut, limits) = read(one + 10);
        assert_eq!((cut.bytes, cut.counted_bytes()), (one, one + 10));

        let mut parked = Parked::new(&targets, limits);
        parked.on_read(&cut);
        assert_eq!(parked.bytes, one + 10);
        assert_eq!(produce(&mut client, 2, "a").await, ErrorCode::None);
        parked.waiter.notified().await;
        assert!(parked.look(2 * one + 10), "as much as of all three");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_changed_partitions_are_checked() {
        let node = Node::start(&[]).await;
        let mut client = node.connect().await;
        create(&mut client, 4).await;
        let targets = [
            wanted(&node, 0, false),
            wanted(&node, 1, false),
            wanted(&node, 2, false),
            wanted(&node, 3, true),
        ];
        let waits = |index: i32| !node.partition(index).waiters.is_empty();
        let mut parked = Parked::new(&targets, LIMITS);
        assert_eq!([0, 1, 2, 3].map(waits), [true, true, true, false]);
        let mut outcome = ReadOutcome::new(4);
        assert!(read_all(&targets, LIMITS, Lookup::Cached, &mut outcome).is_none());
        parked.on_read(&outcome);

        assert_eq!(produce(&mut client, 1, "a").await, ErrorCode::None);
        parked.waiter.notified().await;
        assert_eq!(
            [0, 1, 2].map(waits),
            [true, false, true],
            "only 1 has moved"
        );
        assert!(!parked.look(10_000));
        assert_eq!([0, 1, 2].map(waits), [true; 3], "it waits for more of 1");
        let one = parked.bytes;
        assert!(one > 0 && parked.places[1].bytes == one);

        assert_eq!(produce(&mut client, 1, "b").await, ErrorCode::None);
        parked.waiter.notified().await;
        assert!(!parked.look(2 * one + 1), "both records of 1, each once");
        assert_eq!(parked.bytes, 2 * one);
        assert_eq!(produce(&mut client, 2, "c").await, ErrorCode::None);
        parked.waiter.notified().await;
        assert!(parked.look(3 * one));
        let mut outcome = ReadOutcome::new(4);
        assert!(read_all(&targets, LIMITS, Lookup::Cached, &mut outcome).is_none());
        assert_eq!(outcome.bytes, parked.bytes, "the counted bytes can be read");

        // A partition that stops to be readable is a reason to read at any number of bytes.
        node.partition(0).waiters.wake_all();
        assert!(!parked.look(10_000), "nothing has changed");
        let mut fenced = targets.clone();
        fenced[0].requested.current_leader_epoch = 99;
        let mut of_fenced = Parked::new(&fenced, LIMITS);
        node.partition(0).waiters.wake_all();
        assert!(of_fenced.look(10_000));
        drop((parked, of_fenced));
        assert_eq!([0, 1, 2, 3].map(waits), [false; 4]);
    }
}
