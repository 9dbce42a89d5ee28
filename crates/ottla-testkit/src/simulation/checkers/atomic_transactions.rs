//! A transaction is decided once, and counts as a whole: of a client that reads, processes and writes, what it wrote and how far
//! it has read appear together or not at all. So each input has one committed output, if and only if it is below the committed
//! offset of the group.

use std::collections::BTreeMap;

use ottla_coordinator::TransactionalProducer;
use ottla_records::RecordBatch;
use ottla_types::{Offset, ProducerEpoch, ProducerId, TopicIdPartition};

use super::Finding;
use super::committed_records::CommittedRecords;

/// The partition of the input topic, and the offset of the batch in it.
type Input = (i32, Offset);

#[derive(Default)]
pub(crate) struct AtomicTransactions {
    /// Whether it is a commit, by producer and the epoch in which its markers are written.
    decided: BTreeMap<(ProducerId, ProducerEpoch), bool>,
    /// What each value was made of.
    inputs: BTreeMap<u32, Vec<Input>>,
    /// The transactions in which something was made of an input.
    begun: BTreeMap<Input, Vec<TransactionalProducer>>,
    /// The value that somebody read that was made of an input.
    read: BTreeMap<Input, u32>,
    pub(super) finding: Finding,
}

impl AtomicTransactions {
    /// A producer is about to write a value that it made of these inputs.
    pub(crate) fn on_begun(
        &mut self,
        value: u32,
        inputs: impl Iterator<Item = Input>,
        producer: TransactionalProducer,
    ) {
        for input in inputs {
            self.inputs.entry(value).or_default().push(input);
            self.begun.entry(input).or_default().push(producer);
        }
    }

    /// A coordinator has written that a transaction ends, and sends its markers, with the epoch of `producer`.
    pub(crate) fn on_decided(&mut self, producer: TransactionalProducer, is_commit: bool) {
        let key = (producer.id, producer.epoch);
        let known = *self.decided.entry(key).or_insert(is_commit);
        if known != is_commit {
            self.finding.report(|| {
                format!("the transaction that ends with {producer:?} is committed and aborted")
            });
        }
    }

    /// Whether the transaction in which `producer` writes was committed; nothing while that is open. Its markers have the
    /// next epoch (KIP-890).
    pub(crate) fn decision(&self, producer: TransactionalProducer) -> Option<bool> {
        let epoch = ProducerEpoch(producer.epoch.value() + 1);
        self.decided.get(&(producer.id, epoch)).copied()
    }

    /// A `read_committed` consumer hands a batch on.
    pub(crate) fn on_read(&mut self, batch: &RecordBatch) {
        let value = batch.header.crc;
        for input in self.inputs.get(&value).into_iter().flatten() {
            let known = *self.read.entry(*input).or_insert(value);
            if known != value {
                self.finding.report(|| {
                    let (partition, offset) = input;
                    format!(
                        "of {offset} of partition {partition} there are values {known} and {value}"
                    )
                });
            }
        }
    }

    /// A member of the group of movers is told to go on at `offset`: all that is before it has been moved.
    pub(crate) fn on_position(
        &mut self,
        key: TopicIdPartition,
        offset: Offset,
        committed: &CommittedRecords,
    ) {
        for batch in committed.between(key, Offset(0), offset) {
            let input = (key.partition.0, batch.header.base_offset);
            if !self.is_moved(input) {
                self.finding.report(|| {
                    let (partition, before) = input;
                    format!(
                        "the group is at {offset} of partition {partition}, and nothing was committed of {before}"
                    )
                });
            }
        }
    }

    /// In the end: what lies behind the group's offset has not been moved.
    pub(crate) fn check_nothing_ahead(&mut self, partition: i32, offset: Offset) {
        let ahead = (partition, offset)..(partition + 1, Offset(0));
        let begun = self.begun.range(ahead);
        let moved = begun
            .map(|(input, _)| *input)
            .find(|input| self.is_moved(*input));
        if let Some((_, ahead)) = moved {
            self.finding.report(|| {
                format!("the group is at {offset} of partition {partition}, and {ahead} was moved")
            });
        }
    }

    fn is_moved(&self, input: Input) -> bool {
        let begun = self.begun.get(&input).into_iter().flatten();
        let mut decisions = begun.map(|producer| self.decision(*producer));
        decisions.any(|decision| decision == Some(true))
    }

    pub(crate) fn count(&self) -> usize {
        self.decided.len()
    }
}
