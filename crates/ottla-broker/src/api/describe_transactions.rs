//! DescribeTransactions (KIP-664) on a broker that coordinates none.
//! Kafka: `TransactionCoordinator.handleDescribeTransactions`.

use std::sync::Arc;

use ottla_protocol::messages::describe_transactions_response::TransactionState;
use ottla_protocol::messages::{DescribeTransactionsRequest, DescribeTransactionsResponse};
use ottla_types::ErrorCode;

use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let states = request.transactional_ids.into_iter();
    DescribeTransactionsResponse {
        transaction_states: states
            .map(|transactional_id| TransactionState {
                error_code: match transactional_id.is_empty() {
                    true => ErrorCode::InvalidRequest.code(),
                    false => ErrorCode::NotCoordinator.code(),
                },
                transactional_id,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
