//! No `read_committed` consumer misses a record of a committed transaction: what it goes past it was given; and what a producer
//! was told is committed has been read in the end.

use std::collections::BTreeSet;

use ottla_coordinator::TransactionalProducer;
use ottla_records::RecordBatch;
use ottla_types::{Offset, TopicIdPartition};

use super::Finding;
use super::atomic_transactions::AtomicTransactions;
use super::committed_records::{CommittedRecords, shown};

#[derive(Default)]
pub(crate) struct MissedRecords {
    /// Values whose producers were told that they are committed.
    told: BTreeSet<u32>,
    read: BTreeSet<u32>,
    pub(super) finding: Finding,
}

impl MissedRecords {
    /// A consumer goes on from `from` to `to` with what it was given.
    pub(crate) fn on_read(
        &mut self,
        consumer: i32,
        partition: TopicIdPartition,
        (from, to): (Offset, Offset),
        delivered: &[RecordBatch],
        committed: &CommittedRecords,
        transactions: &AtomicTransactions,
    ) {
        self.read
            .extend(delivered.iter().map(|batch| batch.header.crc));
        for batch in committed.between(partition, from, to) {
            let header = &batch.header;
            let producer = TransactionalProducer {
                id: header.producer_id,
                epoch: header.producer_epoch,
            };
            let counts = !header.is_control()
                && (!header.is_transactional() || transactions.decision(producer) == Some(true));
            if counts && !delivered.contains(batch) {
                let found = shown(batch);
                self.finding.report(|| {
                    format!(
                        "consumer {consumer} goes from {from} to {to} of partition {} past {found} of {producer:?}, which is \
                         committed",
                        partition.partition
                    )
                });
            }
        }
    }

    /// A producer is told that its transaction is committed.
    pub(crate) fn on_told(
        &mut self,
        producer: TransactionalProducer,
        values: impl Iterator<Item = u32>,
        transactions: &AtomicTransactions,
    ) {
        self.told.extend(values);
        let decision = transactions.decision(producer);
        if decision != Some(true) {
            self.finding.report(|| {
                format!("{producer:?} is told that it has committed, but decided is {decision:?}")
            });
        }
    }

    /// In the end.
    pub(crate) fn check_all_read(&mut self) {
        if let Some(value) = self.told.difference(&self.read).next() {
            self.finding.report(|| {
                format!("value {value} is committed, and nobody has read it in the end")
            });
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.told.len()
    }
}
