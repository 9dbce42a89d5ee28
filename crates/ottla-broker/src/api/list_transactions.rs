//! ListTransactions (KIP-664, KIP-994, KIP-1152). Kafka: `TransactionStateManager.listTransactionStates`.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_coordinator::transaction::{ListFilter, TransactionState};
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::list_transactions_response::TransactionState as Listed;
use ottla_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse};
use ottla_types::ErrorCode;
use regex::Regex;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let mut response = ListTransactionsResponse::default();
    let pattern = match pattern_of(&request) {
        Ok(pattern) => pattern,
        Err(error) => {
            response.error_code = error.code();
            return response;
        }
    };
    let asked: BTreeSet<_> = request.state_filters.iter().cloned().collect();
    let has_state_filter = !asked.is_empty();
    let mut states = Vec::new();
    for name in asked {
        match TransactionState::from_name(&name) {
            Some(state) => states.push(state),
            None => response.unknown_state_filters.push(name),
        }
    }
    let matches_id = |id: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(id));
    let filter = ListFilter {
        producer_ids: &request.producer_id_filters,
        has_state_filter,
        states: &states,
        duration_ms: (request.duration_filter >= 0).then_some(request.duration_filter),
        matches_id: &matches_id,
    };
    let now = broker.timestamp();
    for shard in broker.transactions.all_shards() {
        match shard.read(|coordinator| coordinator.list(&filter, now)) {
            Ok(listed) => {
                let listed = listed.into_iter().map(|it| Listed {
                    transactional_id: it.transactional_id,
                    producer_id: it.producer_id.0,
                    transaction_state: it.state.name().into(),
                    ..Default::default()
                });
                response.transaction_states.extend(listed);
            }
            Err(ErrorCode::CoordinatorLoadInProgress) => {
                return ListTransactionsResponse::of_error(ErrorCode::CoordinatorLoadInProgress);
            }
            // The coordinator has moved to another broker.
            Err(_) => {}
        }
    }
    let (describe, of_id) = (Operation::Describe, ResourceType::TransactionalId);
    response.transaction_states.retain(|it| {
        let authorizer = &broker.authorizer;
        authorizer.is_allowed(context, describe, of_id, &it.transactional_id)
    });
    response
}

/// The pattern must match the whole ID.
fn pattern_of(request: &ListTransactionsRequest) -> Result<Option<Regex>, ErrorCode> {
    let pattern = request.transactional_id_pattern.as_deref();
    let Some(pattern) = pattern.filter(|pattern| !pattern.is_empty()) else {
        return Ok(None);
    };
    Regex::new(&format!("^(?:{pattern})$"))
        .map(Some)
        .map_err(|_| ErrorCode::InvalidRegularExpression)
}
