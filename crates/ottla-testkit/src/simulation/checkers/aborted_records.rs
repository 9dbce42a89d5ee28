//! No `read_committed` consumer is given a record of a transaction that was aborted, nor of one that is not decided.

use ottla_coordinator::TransactionalProducer;
use ottla_records::RecordBatch;

use super::Finding;
use super::atomic_transactions::AtomicTransactions;
use super::committed_records::shown;

#[derive(Default)]
pub(crate) struct AbortedRecords {
    pub(super) finding: Finding,
}

impl AbortedRecords {
    /// A consumer hands a batch on.
    pub(crate) fn on_read(
        &mut self,
        consumer: i32,
        batch: &RecordBatch,
        transactions: &AtomicTransactions,
    ) {
        let producer = TransactionalProducer {
            id: batch.header.producer_id,
            epoch: batch.header.producer_epoch,
        };
        let decision = transactions.decision(producer);
        if batch.header.is_transactional() && decision != Some(true) {
            let found = shown(batch);
            let what = match decision {
                Some(_) => "was aborted",
                None => "is not decided",
            };
            self.finding.report(|| {
                format!(
                    "consumer {consumer} reads {found} of {producer:?}, whose transaction {what}"
                )
            });
        }
    }
}
