//! Finds the batches of a read that belong to aborted transactions.
//! Source: `SharePartition.fetchAbortedTransactionRecordBatches`.

use std::collections::HashSet;

use ottla_types::{Offset, ProducerId};

/// The fields of a batch of the log that a share partition needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchedBatch {
    pub base_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    /// [`ProducerId::NONE`] for a producer without one.
    pub producer_id: ProducerId,
    pub is_transactional: bool,
    /// Whether it is the abort marker of its producer's transaction.
    pub is_abort_marker: bool,
}

/// An entry of the aborted transactions that a read-committed read returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
}

/// The batches that a read-committed reader must not see, in order. `batches` must be in order as
/// well.
pub fn aborted_batches<'a>(
    batches: &'a [FetchedBatch],
    aborted_transactions: &[AbortedTransaction],
) -> Vec<&'a FetchedBatch> {
    let mut transactions = aborted_transactions.to_vec();
    transactions.sort_by_key(|transaction| transaction.first_offset);
    let mut transactions = transactions.into_iter().peekable();
    let mut aborted_producers = HashSet::new();
    let mut aborted = Vec::new();
    for batch in batches {
        if batch.producer_id == ProducerId::NONE {
            continue;
        }
        while let Some(begun) =
            transactions.next_if(|transaction| transaction.first_offset <= batch.last_offset)
        {
            aborted_producers.insert(begun.producer_id);
        }
        if batch.is_abort_marker {
            aborted_producers.remove(&batch.producer_id);
        } else if batch.is_transactional && aborted_producers.contains(&batch.producer_id) {
            aborted.push(batch);
        }
    }
    aborted
}
