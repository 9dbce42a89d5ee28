//! What must hold in every run: one property a file. Each keeps its first finding, a sentence.

use ottla_records::RecordBatch;
use ottla_types::{LeaderEpoch, Offset, TopicIdPartition};

use super::coordinator_shell::OFFSETS_TOPIC;
use super::partition_log::PartitionLog;

pub(crate) mod aborted_records;
pub(crate) mod acknowledged;
pub(crate) mod atomic_transactions;
pub(crate) mod committed_offsets;
pub(crate) mod committed_records;
pub(crate) mod consumers;
pub(crate) mod convergence;
pub(crate) mod fenced_producers;
pub(crate) mod high_watermarks;
pub(crate) mod idempotence;
pub(crate) mod log_matching;
pub(crate) mod metadata_committed;
pub(crate) mod metadata_leaders;
pub(crate) mod missed_records;
pub(crate) mod partition_leaders;
pub(crate) mod partition_owners;
pub(crate) mod share_deliveries;
pub(crate) mod share_delivery_counts;
pub(crate) mod share_locks;

/// The first thing that a checker found.
#[derive(Default, Debug)]
pub(crate) struct Finding(Option<String>);

impl Finding {
    pub(crate) fn report(&mut self, finding: impl FnOnce() -> String) {
        if self.0.is_none() {
            self.0 = Some(finding());
        }
    }
}

#[derive(Default)]
pub(crate) struct Checkers {
    pub metadata_leaders: metadata_leaders::MetadataLeaders,
    pub metadata_committed: metadata_committed::MetadataCommitted,
    pub partition_leaders: partition_leaders::PartitionLeaders,
    pub high_watermarks: high_watermarks::HighWatermarks,
    pub committed_records: committed_records::CommittedRecords,
    pub acknowledged: acknowledged::Acknowledged,
    pub idempotence: idempotence::Idempotence,
    pub consumers: consumers::Consumers,
    pub log_matching: log_matching::LogMatching,
    pub aborted_records: aborted_records::AbortedRecords,
    pub missed_records: missed_records::MissedRecords,
    pub atomic_transactions: atomic_transactions::AtomicTransactions,
    pub fenced_producers: fenced_producers::FencedProducers,
    pub partition_owners: partition_owners::PartitionOwners,
    pub committed_offsets: committed_offsets::CommittedOffsets,
    pub share_locks: share_locks::ShareLocks,
    pub share_delivery_counts: share_delivery_counts::ShareDeliveryCounts,
    pub share_deliveries: share_deliveries::ShareDeliveries,
    pub convergence: convergence::Convergence,
}

impl Checkers {
    /// What is promised where elections may be unclean is less.
    pub(crate) fn new(is_unclean: bool) -> Checkers {
        let mut checkers = Checkers::default();
        checkers.committed_records.is_unclean = is_unclean;
        checkers.acknowledged.is_unclean = is_unclean;
        checkers.consumers.is_unclean = is_unclean;
        checkers
    }

    /// A leader's high watermark has come to where it is.
    pub(crate) fn on_committed(
        &mut self,
        id: i32,
        partition: TopicIdPartition,
        topic: &str,
        epoch: LeaderEpoch,
        log: &PartitionLog,
        high_watermark: Offset,
    ) {
        let records = &mut self.committed_records;
        for batch in records.on_committed(id, partition, epoch, log, high_watermark) {
            self.fenced_producers.on_committed(partition, &batch);
            if topic == OFFSETS_TOPIC {
                self.committed_offsets.on_committed(partition, &batch);
            }
        }
    }

    /// A `read_committed` consumer goes on from `from` to `to` with what it was given.
    pub(crate) fn on_read_committed(
        &mut self,
        consumer: i32,
        partition: TopicIdPartition,
        from: Offset,
        to: Offset,
        delivered: &[RecordBatch],
    ) {
        let (committed, transactions) = (&self.committed_records, &mut self.atomic_transactions);
        for batch in delivered {
            self.aborted_records.on_read(consumer, batch, transactions);
            transactions.on_read(batch);
        }
        let missed = &mut self.missed_records;
        missed.on_read(
            consumer,
            partition,
            (from, to),
            delivered,
            committed,
            transactions,
        );
    }

    /// The first finding, with the name of its checker.
    pub(crate) fn finding(&self) -> Option<String> {
        let all: [(&str, &Finding); 19] = [
            ("metadata-leaders", &self.metadata_leaders.finding),
            ("metadata-committed", &self.metadata_committed.finding),
            ("partition-leaders", &self.partition_leaders.finding),
            ("high-watermarks", &self.high_watermarks.finding),
            ("committed-records", &self.committed_records.finding),
            ("acknowledged", &self.acknowledged.finding),
            ("idempotence", &self.idempotence.finding),
            ("consumers", &self.consumers.finding),
            ("log-matching", &self.log_matching.finding),
            ("aborted-records", &self.aborted_records.finding),
            ("missed-records", &self.missed_records.finding),
            ("atomic-transactions", &self.atomic_transactions.finding),
            ("fenced-producers", &self.fenced_producers.finding),
            ("partition-owners", &self.partition_owners.finding),
            ("committed-offsets", &self.committed_offsets.finding),
            ("share-locks", &self.share_locks.finding),
            ("share-delivery-counts", &self.share_delivery_counts.finding),
            ("share-deliveries", &self.share_deliveries.finding),
            ("convergence", &self.convergence.finding),
        ];
        all.iter()
            .find_map(|(name, finding)| Some(format!("{name}: {}", finding.0.as_ref()?)))
    }
}
