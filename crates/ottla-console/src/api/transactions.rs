//! Transactions, the producers of partitions, and aborting.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::http::StatusCode;
use futures_util::future::join_all;
use ottla_client::admin::{OffsetSpec, OpenTransaction, TransactionFilter, TransactionListing};
use ottla_protocol::messages::describe_transactions_response::TransactionState;
use serde::{Deserialize, Serialize};

use super::groups::TopicPartitions;
use super::topics::current_partitions;
use crate::console::Visitor;
use crate::extract::{Body, Path, Query};
use crate::list::{Items, ListQuery, Page, SortKey};
use crate::problem::Problem;
use crate::view::now_ms;

/// Open transactions that are described for the list.
const DESCRIBED: usize = 200;
/// Partitions whose producers are requested at a time.
const PARTITIONS_AT_A_TIME: usize = 16;
/// A transaction with a later write may be a live one that its coordinator does not know yet, or
/// has just ended: the default of `transaction.max.timeout.ms`, and the time of an abort after it.
const HANGS_AFTER_MS: i64 = (15 + 5) * 60 * 1000;

#[derive(Serialize)]
pub(super) struct Transaction {
    transactional_id: String,
    state: String,
    producer_id: i64,
    producer_epoch: Option<i16>,
    coordinator: i32,
    timeout_ms: Option<i32>,
    /// When the open transaction began.
    started: Option<i64>,
    topics: Option<Vec<TopicPartitions>>,
}

#[derive(Deserialize)]
pub(super) struct TransactionsQuery {
    state: Option<String>,
}

pub(super) async fn list(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
    Query(query): Query<TransactionsQuery>,
) -> Result<Json<Page<Transaction>>, Problem> {
    let filter = TransactionFilter::default();
    let mut listings = visitor.admin.list_transactions(&filter).await?;
    listings.retain(|it| {
        let state = query.state.as_deref();
        list.matches(&it.transactional_id)
            && state.is_none_or(|state| state.eq_ignore_ascii_case(&it.state))
    });
    // Open ones first.
    listings.sort_by_key(|it| !is_open(&it.state));
    let mut page = list.page(listings, |it, field| match field {
        "transactional_id" => Some(SortKey::Text(it.transactional_id.clone())),
        "state" => Some(SortKey::Text(it.state.clone())),
        _ => None,
    })?;
    let open = page
        .items
        .iter()
        .filter(|it| is_open(&it.state))
        .take(DESCRIBED);
    let open = open.map(|it| visitor.admin.describe_transaction(&it.transactional_id));
    let described = join_all(open.collect::<Vec<_>>()).await;
    let states: BTreeMap<String, TransactionState> = described
        .into_iter()
        .filter_map(|it| it.ok())
        .map(|(_, state)| (state.transactional_id.to_string(), state))
        .collect();
    let items = std::mem::take(&mut page.items)
        .into_iter()
        .map(|it: TransactionListing| {
            let state = states.get(&it.transactional_id);
            match state {
                Some(state) => transaction(it.coordinator, state),
                None => Transaction {
                    transactional_id: it.transactional_id,
                    state: it.state,
                    producer_id: it.producer_id,
                    producer_epoch: None,
                    coordinator: it.coordinator,
                    timeout_ms: None,
                    started: None,
                    topics: None,
                },
            }
        });
    Ok(Json(Page {
        total: page.total,
        as_of: None,
        items: items.collect(),
    }))
}

fn is_open(state: &str) -> bool {
    !matches!(state, "Empty" | "CompleteCommit" | "CompleteAbort" | "Dead")
}

fn transaction(coordinator: i32, state: &TransactionState) -> Transaction {
    let topics = state.topics.iter().map(|topic| TopicPartitions {
        topic: topic.topic.to_string(),
        partitions: Some(topic.partitions.clone()),
    });
    Transaction {
        transactional_id: state.transactional_id.to_string(),
        state: state.transaction_state.to_string(),
        producer_id: state.producer_id,
        producer_epoch: Some(state.producer_epoch),
        coordinator,
        timeout_ms: Some(state.transaction_timeout_ms),
        started: Some(state.transaction_start_time_ms).filter(|it| *it >= 0),
        topics: Some(topics.collect()),
    }
}

pub(super) async fn get(
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<Transaction>, Problem> {
    let (coordinator, state) = visitor.admin.describe_transaction(&id).await?;
    Ok(Json(transaction(coordinator, &state)))
}

/// Fences the producer, as `kafka-transactions forceTerminateTransaction` does.
pub(super) async fn abort(visitor: Visitor, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    // Fencing an unknown id would create it, and fencing one without an open transaction would stop
    // its producer for nothing.
    let (_, state) = visitor.admin.describe_transaction(&id).await?;
    if &*state.transaction_state != "Ongoing" {
        return Err(Problem::conflict(format!(
            "transactional id {id} has no open transaction, its state is {}; reload the list",
            &*state.transaction_state
        )));
    }
    visitor.admin.fence_producer(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize)]
pub(super) struct PartitionProducer {
    partition: i32,
    producer_id: i64,
    producer_epoch: i32,
    coordinator_epoch: i32,
    last_sequence: i32,
    last_timestamp: Option<i64>,
    transaction_start_offset: Option<i64>,
    transactional_id: Option<String>,
    /// Open here for long without a write, and no coordinator knows the transaction.
    is_hanging: bool,
    /// Offsets that read_committed consumers cannot read because of it.
    holds_back: Option<i64>,
}

pub(super) async fn producers(
    visitor: Visitor,
    Path(topic): Path<String>,
) -> Result<Json<Items<PartitionProducer>>, Problem> {
    let admin = &visitor.admin;
    let partitions = current_partitions(&visitor, &topic).await?;
    let mut items = Vec::new();
    for chunk in partitions.chunks(PARTITIONS_AT_A_TIME) {
        let asked = chunk.iter().map(|(topic, number)| async move {
            (
                *number,
                admin.describe_producers(topic, *number, None).await,
            )
        });
        for (partition, producers) in join_all(asked).await {
            items.extend(producers?.into_iter().map(|it| PartitionProducer {
                partition,
                producer_id: it.producer_id,
                producer_epoch: it.producer_epoch,
                coordinator_epoch: it.coordinator_epoch,
                last_sequence: it.last_sequence,
                last_timestamp: Some(it.last_timestamp).filter(|it| *it >= 0),
                transaction_start_offset: Some(it.current_txn_start_offset).filter(|it| *it >= 0),
                transactional_id: None,
                is_hanging: false,
                holds_back: None,
            }));
        }
    }
    let open: BTreeSet<i64> = items
        .iter()
        .filter(|it| it.transaction_start_offset.is_some())
        .map(|it| it.producer_id)
        .collect();
    if !open.is_empty() {
        let known = known_transactions(&visitor, &topic, open).await?;
        let now = now_ms();
        let ends = admin
            .list_offsets_once(&partitions, OffsetSpec::Latest, false)
            .await;
        for item in items
            .iter_mut()
            .filter(|it| it.transaction_start_offset.is_some())
        {
            let of_producer = known.get(&item.producer_id);
            item.transactional_id = of_producer.map(|it| it.transactional_id.clone());
            item.is_hanging = is_hanging(of_producer, item.partition, item.last_timestamp, now);
            let end = ends.get(&(topic.clone(), item.partition));
            let end = end.and_then(|it| it.as_ref().ok()).map(|it| it.offset);
            item.holds_back = end
                .zip(item.transaction_start_offset)
                .map(|(end, start)| end - start);
        }
    }
    Ok(Json(Items { items }))
}

/// The coordinator's description of a producer.
struct KnownTransaction {
    transactional_id: String,
    /// The partitions of the topic in its open transaction; `None` if it could not be described.
    partitions: Option<BTreeSet<i32>>,
}

/// Whether no coordinator will end a transaction that is open in a partition.
fn is_hanging(
    known: Option<&KnownTransaction>,
    partition: i32,
    last_write: Option<i64>,
    now: i64,
) -> bool {
    let is_unknown = known.is_none_or(|known| {
        let partitions = known.partitions.as_ref();
        partitions.is_some_and(|it| !it.contains(&partition))
    });
    is_unknown && last_write.is_some_and(|last| now.saturating_sub(last) > HANGS_AFTER_MS)
}

/// By producer ID.
async fn known_transactions(
    visitor: &Visitor,
    topic: &str,
    producer_ids: BTreeSet<i64>,
) -> Result<BTreeMap<i64, KnownTransaction>, Problem> {
    let filter = TransactionFilter {
        producer_ids: producer_ids.into_iter().collect(),
        ..TransactionFilter::default()
    };
    let mut known = BTreeMap::new();
    for listing in visitor.admin.list_transactions(&filter).await? {
        let described = visitor
            .admin
            .describe_transaction(&listing.transactional_id)
            .await;
        let partitions = described.ok().map(|(_, state)| {
            let topics = state.topics.iter().filter(|it| &*it.topic == topic);
            topics.flat_map(|it| it.partitions.clone()).collect()
        });
        let transaction = KnownTransaction {
            transactional_id: listing.transactional_id,
            partitions,
        };
        known.insert(listing.producer_id, transaction);
    }
    Ok(known)
}

#[derive(Deserialize)]
pub(super) struct HangingTransaction {
    partition: i32,
    producer_id: i64,
    producer_epoch: i16,
    coordinator_epoch: i32,
    transaction_start_offset: i64,
}

/// Aborts a transaction that still hangs. The marker is written without the coordinator, and ends
/// any open transaction of the producer in the partition. So the transaction from the page is
/// looked up again. The coordinators are asked first: a transaction that begins after that has a
/// new write.
pub(super) async fn abort_hanging(
    visitor: Visitor,
    Path(topic): Path<String>,
    Body(hanging): Body<HangingTransaction>,
) -> Result<StatusCode, Problem> {
    visitor.note.names(format!(
        "partition {}, producer {}",
        hanging.partition, hanging.producer_id
    ));
    let of_producer = BTreeSet::from([hanging.producer_id]);
    let known = known_transactions(&visitor, &topic, of_producer).await?;
    let producers = visitor
        .admin
        .describe_producers(&topic, hanging.partition, None)
        .await?;
    let is_the_same = producers.iter().any(|it| {
        it.producer_id == hanging.producer_id
            && it.producer_epoch == i32::from(hanging.producer_epoch)
            && it.current_txn_start_offset == hanging.transaction_start_offset
            && it.current_txn_start_offset >= 0
            && is_hanging(
                known.get(&hanging.producer_id),
                hanging.partition,
                Some(it.last_timestamp).filter(|it| *it >= 0),
                now_ms(),
            )
    });
    if !is_the_same {
        return Err(Problem::conflict(format!(
            "producer {} has no hanging transaction from offset {} in {topic}-{}: it was ended, is known to its \
             coordinator, or had a write in the last {} minutes; reload the producers",
            hanging.producer_id,
            hanging.transaction_start_offset,
            hanging.partition,
            HANGS_AFTER_MS / 60_000
        )));
    }
    let open = OpenTransaction {
        topic,
        partition: hanging.partition,
        producer_id: hanging.producer_id,
        producer_epoch: hanging.producer_epoch,
        // Before the first marker there is none; 0 is never newer than a later coordinator's.
        coordinator_epoch: hanging.coordinator_epoch.max(0),
    };
    visitor.admin.abort_transaction(&open).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_possibly_live_transaction_does_not_count_as_hanging() {
        let known = |partitions: Option<&[i32]>| KnownTransaction {
            transactional_id: "t".into(),
            partitions: partitions.map(|it| it.iter().copied().collect()),
        };
        let now = 1_700_000_000_000;
        let (long_ago, just_now) = (Some(now - HANGS_AFTER_MS - 1), Some(now - 1000));
        assert!(is_hanging(None, 1, long_ago, now));
        assert!(is_hanging(Some(&known(Some(&[0, 2]))), 1, long_ago, now));
        // It may have committed since the producers were asked, or be hidden from this user.
        assert!(!is_hanging(None, 1, just_now, now));
        assert!(!is_hanging(Some(&known(Some(&[]))), 1, just_now, now));
        assert!(!is_hanging(Some(&known(Some(&[1]))), 1, long_ago, now));
        assert!(!is_hanging(Some(&known(None)), 1, long_ago, now));
        assert!(!is_hanging(None, 1, None, now));
    }
}
