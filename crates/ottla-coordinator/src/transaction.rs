//! The transaction coordinator: the state machine of `__transaction_state`.

mod config;
mod coordinator;
mod metadata;
mod outcome;
mod record;
mod replay;
mod requests;
mod state;

mod add_partitions;
mod end_txn;
mod init_producer_id;
mod markers;
mod timeouts;

mod describe;

pub use config::TransactionCoordinatorConfig;
pub use coordinator::TransactionCoordinator;
pub use describe::{ListFilter, ListedTransaction};
pub use metadata::Transaction;
pub use outcome::{
    Command, EndTxnResult, InitProducerIdResult, Markers, Outcome, Response, TimerKey,
    error_after_append,
};
pub use record::TransactionLogRecord;
pub use requests::{AddPartitions, EndTransaction, InitProducerId};
pub use state::TransactionState;

#[cfg(test)]
mod tests;
