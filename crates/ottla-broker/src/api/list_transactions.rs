//! ListTransactions (KIP-664) on a broker that coordinates none.
//! Kafka: `TransactionStateManager.listTransactionStates`.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse};

use crate::{Broker, RequestContext};

/// `TransactionState`, by its names.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
];

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let asked: BTreeSet<_> = request.state_filters.into_iter().collect();
    let unknown = asked.into_iter().filter(|name| !STATES.contains(&&**name));
    ListTransactionsResponse {
        unknown_state_filters: unknown.collect(),
        ..Default::default()
    }
}
