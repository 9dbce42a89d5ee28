//! The open transactions while the cleaner goes through a log, and the markers that may be
//! discarded.
//!
//! A marker is kept until no batch of its transaction is left, and so is the transaction index
//! entry of an aborted one.
//!
//! Kafka: `CleanedTransactionMetadata`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use ottla_records::BatchHeader;
use ottla_records::control::ControlRecordType;
use ottla_types::{Offset, ProducerId};

use crate::index::AbortedTxn;

#[derive(Default)]
pub(super) struct CleanedTransactions {
    /// Producers with a batch of a transaction that was not aborted.
    committed: HashSet<ProducerId>,
    aborted: HashMap<ProducerId, OngoingAborted>,
    /// Aborted transactions that begin at a later offset, the earliest on top.
    to_come: BinaryHeap<Reverse<(Offset, ByOffset)>>,
}

struct OngoingAborted {
    txn: AbortedTxn,
    has_batches: bool,
}

/// Equal to all others, so that only the offset in the same entry orders the heap.
struct ByOffset(AbortedTxn);

impl PartialEq for ByOffset {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ByOffset {}

impl PartialOrd for ByOffset {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByOffset {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// Whether a marker is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    /// Nothing needs it: it may be dropped after its delete horizon.
    Discardable,
    Needed,
    /// Needed, together with this entry of the transaction index.
    NeededWith(AbortedTxn),
}

impl CleanedTransactions {
    /// Adds the aborted transactions from the indexes of the next segments. Adding one twice does
    /// no harm.
    pub(super) fn add_aborted(&mut self, aborted: impl IntoIterator<Item = AbortedTxn>) {
        let entries = aborted.into_iter();
        self.to_come
            .extend(entries.map(|txn| Reverse((txn.first_offset, ByOffset(txn)))));
    }

    /// Processes a control batch. `kind` is the type of its record: the outer `None` means that no
    /// record is left, the inner `None` an unknown type.
    pub(super) fn on_control_batch(
        &mut self,
        header: &BatchHeader,
        kind: Option<Option<ControlRecordType>>,
    ) -> Marker {
        self.begin_up_to(header.last_offset());
        let Some(kind) = kind else {
            return Marker::Discardable;
        };
        match kind {
            Some(ControlRecordType::Abort) => match self.aborted.remove(&header.producer_id) {
                Some(ongoing) if ongoing.has_batches => Marker::NeededWith(ongoing.txn),
                _ => Marker::Discardable,
            },
            Some(ControlRecordType::Commit) => match self.committed.remove(&header.producer_id) {
                true => Marker::Needed,
                false => Marker::Discardable,
            },
            _ => Marker::Needed,
        }
    }

    /// Processes a data batch. Returns whether it belongs to an aborted transaction.
    pub(super) fn on_batch(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some(ongoing) => {
                ongoing.has_batches = true;
                true
            }
            None => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    fn begin_up_to(&mut self, offset: Offset) {
        while let Some(Reverse((first, _))) = self.to_come.peek()
            && *first <= offset
            && let Some(Reverse((_, ByOffset(txn)))) = self.to_come.pop()
        {
            let ongoing = OngoingAborted {
                txn,
                has_batches: false,
            };
            self.aborted.entry(txn.producer_id).or_insert(ongoing);
        }
    }
}
