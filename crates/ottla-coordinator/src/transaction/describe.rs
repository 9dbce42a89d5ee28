//! DescribeTransactions and ListTransactions, from the current state. Source:
//! `TransactionCoordinator.handleDescribeTransactions`,
//! `TransactionStateManager.listTransactionStates`; KIP-664, KIP-994, KIP-1152.

use bytestring::ByteString;
use ottla_types::{ErrorCode, ProducerId, Timestamp};

use super::coordinator::TransactionCoordinator;
use super::metadata::Transaction;
use super::state::TransactionState;

/// A filter of transactional ids. Empty lists and `None` match everything.
pub struct ListFilter<'a> {
    pub producer_ids: &'a [i64],
    pub has_state_filter: bool,
    pub states: &'a [TransactionState],
    /// Only transactions that have been running for longer than this.
    pub duration_ms: Option<i64>,
    pub matches_id: &'a dyn Fn(&str) -> bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTransaction {
    pub transactional_id: ByteString,
    pub producer_id: ProducerId,
    pub state: TransactionState,
}

impl TransactionCoordinator {
    pub fn describe(&self, transactional_id: &str) -> Result<&Transaction, ErrorCode> {
        if transactional_id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let known = self.transactions.get(transactional_id);
        known
            .map(|metadata| &metadata.transaction)
            .filter(|transaction| transaction.state != TransactionState::Dead)
            .ok_or(ErrorCode::TransactionalIdNotFound)
    }

    pub fn list(&self, filter: &ListFilter<'_>, now: Timestamp) -> Vec<ListedTransaction> {
        let is_wanted = |id: &str, transaction: &Transaction| {
            let runs_for_ms = now.value().saturating_sub(transaction.start_timestamp_ms);
            transaction.state != TransactionState::Dead
                && (filter.producer_ids.is_empty()
                    || filter
                        .producer_ids
                        .contains(&transaction.producer_id.value()))
                && (!filter.has_state_filter || filter.states.contains(&transaction.state))
                && filter.duration_ms.is_none_or(|least| runs_for_ms > least)
                && (filter.matches_id)(id)
        };
        self.transactions
            .values()
            .filter(|metadata| is_wanted(&metadata.transactional_id, &metadata.transaction))
            .map(|metadata| ListedTransaction {
                transactional_id: metadata.transactional_id.clone(),
                producer_id: metadata.transaction.producer_id,
                state: metadata.transaction.state,
            })
            .collect()
    }
}
