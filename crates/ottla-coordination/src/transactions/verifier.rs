//! Asks transaction coordinators whether partitions are part of a transaction, or adds them to it
//! (KIP-890).
//!
//! One request per transactional ID is in flight at a time; later questions go together in the next
//! one, so that the partitions of one Produce do not conflict at the coordinator.
//!
//! Invariant: every question is answered exactly once, even if the coordinator cannot be reached.
//!
//! Kafka: `AddPartitionsToTxnManager`.

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_coordinator::transaction::AddPartitions;
use ottla_protocol::messages::AddPartitionsToTxnRequest;
use ottla_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, PartitionIndex, TopicPartition};

use ottla_partition::partition::producer_transaction::{AddedBy, AskedFor, ProducerTransaction};

use super::coordinators::{TRANSACTION_TOPIC, TransactionCoordinators};
use super::write_markers::request_timeout;
use ottla_net::{PeerError, PeerFailure};

/// The transaction version in which brokers add partitions for clients.
const ADDED_BY_BROKERS: i16 = 2;

type Answer = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

struct Question {
    transaction: Arc<ProducerTransaction>,
    partition: TopicPartition,
    answer: Answer,
}

pub struct Verifier {
    coordinators: Arc<TransactionCoordinators>,
    /// Pending questions by transactional ID. An entry exists while a task is asking.
    questions: Mutex<HashMap<ByteString, Vec<Question>>>,
}

impl Verifier {
    pub(super) fn new(coordinators: Arc<TransactionCoordinators>) -> Self {
        Verifier {
            coordinators,
            questions: Mutex::default(),
        }
    }

    /// Asks whether `partition` is part of the transaction.
    pub fn ask(
        self: &Arc<Self>,
        transaction: Arc<ProducerTransaction>,
        partition: TopicPartition,
        answer: Answer,
    ) {
        let id = transaction.transactional_id.clone();
        let question = Question {
            transaction,
            partition,
            answer,
        };
        let mut questions = self.questions.lock();
        if let Some(waiting) = questions.get_mut(&id) {
            waiting.push(question);
            return;
        }
        questions.insert(id.clone(), vec![question]);
        drop(questions);
        let verifier = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            while let Some(together) = verifier.next(&id) {
                answer_together(&verifier.coordinators, together).await;
            }
        });
    }

    /// The questions for the next request; `None` if there are none.
    fn next(&self, id: &ByteString) -> Option<Vec<Question>> {
        let mut questions = self.questions.lock();
        let waiting = questions.get_mut(id)?;
        let Some(first) = waiting.first().map(|first| Arc::clone(&first.transaction)) else {
            questions.remove(id);
            return None;
        };
        let (together, rest) = std::mem::take(waiting)
            .into_iter()
            .partition(|question| *question.transaction == *first);
        *waiting = rest;
        Some(together)
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier")
    }
}

async fn answer_together(
    coordinators: &Arc<TransactionCoordinators>,
    mut questions: Vec<Question>,
) {
    let began = ottla_sync::time::now();
    let config = coordinators.surroundings.context.config().clone();
    let retry_for = Duration::from_millis(
        config
            .add_partitions_to_txn_retry_backoff_max_ms
            .min(config.request_timeout_ms)
            .max(0) as u64,
    );
    let longest_backoff =
        Duration::from_millis(config.add_partitions_to_txn_retry_backoff_ms.max(1) as u64);
    // Ending a transaction often takes less than a millisecond.
    let mut backoff = Duration::from_millis(1);
    loop {
        let Some(first) = questions.first() else {
            return;
        };
        let transaction = Arc::clone(&first.transaction);
        let mut partitions: Vec<_> = questions.iter().map(|it| it.partition.clone()).collect();
        partitions.sort();
        partitions.dedup();
        let errors = ask_coordinator(coordinators, &transaction, &partitions).await;
        let error_of = |partition: &TopicPartition| {
            let index = partitions.binary_search(partition);
            index.map_or(ErrorCode::UnknownServerError, |index| errors[index])
        };
        // The previous transaction is still being completed, which is faster than a retry by the
        // client.
        let may_retry =
            transaction.adds_partitions() && ottla_sync::time::now() - began < retry_for;
        let (again, settled): (Vec<_>, Vec<_>) = questions.into_iter().partition(|question| {
            may_retry && error_of(&question.partition) == ErrorCode::ConcurrentTransactions
        });
        for question in settled {
            let error = error_of(&question.partition);
            (question.answer)(result_of(error, &transaction));
        }
        questions = again;
        if !questions.is_empty() {
            ottla_sync::time::sleep(backoff).await;
            backoff = (2 * backoff).min(longest_backoff);
        }
    }
}

fn result_of(error: ErrorCode, transaction: &ProducerTransaction) -> Result<(), ErrorCode> {
    let added_by = transaction.added_by;
    match error {
        ErrorCode::None => Ok(()),
        // The error that producers expect on a write after a newer instance was started.
        ErrorCode::ProducerFenced => Err(ErrorCode::InvalidProducerEpoch),
        ErrorCode::TransactionAbortable if added_by == AddedBy::Client => {
            Err(ErrorCode::InvalidTxnState)
        }
        ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator
            if transaction.asked_for == AskedFor::Produce =>
        {
            Err(ErrorCode::NotEnoughReplicas)
        }
        ErrorCode::ConcurrentTransactions
            if transaction.asked_for == AskedFor::Produce && !transaction.adds_partitions() =>
        {
            Err(ErrorCode::NotEnoughReplicas)
        }
        error => Err(error),
    }
}

/// The coordinator's result for each partition.
async fn ask_coordinator(
    coordinators: &Arc<TransactionCoordinators>,
    transaction: &ProducerTransaction,
    partitions: &[TopicPartition],
) -> Vec<ErrorCode> {
    let all = |error| vec![error; partitions.len()];
    let image = coordinators.surroundings.context.metadata().clone();
    let index = coordinators.partition_of(&transaction.transactional_id);
    let leader = image
        .topics
        .partition(TRANSACTION_TOPIC, PartitionIndex(index))
        .and_then(|partition| image.cluster.broker(partition.leader))
        .filter(|leader| !leader.fenced);
    let Some(leader) = leader.map(|leader| leader.id) else {
        return all(ErrorCode::CoordinatorNotAvailable);
    };
    if leader == coordinators.surroundings.context.broker_id() {
        return ask_here(coordinators, index, transaction, partitions).await;
    }
    let asked = async {
        let timeout = request_timeout(&coordinators.surroundings);
        let connection = coordinators
            .surroundings
            .peers
            .connection(&coordinators.surroundings.context, leader, timeout)
            .await?;
        connection.send(&request_of(transaction, partitions)).await
    };
    let response = match asked.await {
        Ok(response) => response,
        // The broker is too old for this request.
        Err(PeerError {
            failure: PeerFailure::Unsupported { .. },
            ..
        }) => return all(ErrorCode::None),
        Err(error) => {
            tracing::debug!("a transaction cannot be verified: {error}");
            return all(ErrorCode::NetworkException);
        }
    };
    match ErrorCode::from_code(response.error_code) {
        ErrorCode::None => {}
        // The client can do nothing about this error.
        ErrorCode::ClusterAuthorizationFailed => return all(ErrorCode::InvalidTxnState),
        error => return all(error),
    }
    let results = response.results_by_transaction.iter();
    let topics = results.flat_map(|result| &result.topic_results);
    let by_partition: HashMap<TopicPartition, ErrorCode> = topics
        .flat_map(|topic| {
            topic.results_by_partition.iter().map(|result| {
                let partition = TopicPartition::new(topic.name.clone(), result.partition_index);
                (partition, ErrorCode::from_code(result.partition_error_code))
            })
        })
        .collect();
    let error_of = |partition| by_partition.get(partition).copied();
    partitions
        .iter()
        .map(|partition| error_of(partition).unwrap_or(ErrorCode::UnknownServerError))
        .collect()
}

async fn ask_here(
    coordinators: &Arc<TransactionCoordinators>,
    index: i32,
    transaction: &ProducerTransaction,
    partitions: &[TopicPartition],
) -> Vec<ErrorCode> {
    let all = |error| vec![error; partitions.len()];
    let shard = match coordinators.shard(index) {
        Ok(shard) => shard,
        Err(error) => return all(error),
    };
    let (id, producer) = (&transaction.transactional_id, transaction.producer);
    if !transaction.adds_partitions() {
        let verified = shard.read(|coordinator| {
            partitions
                .iter()
                .map(|partition| coordinator.verify_partitions(id, producer, partition))
                .collect()
        });
        return verified.unwrap_or_else(all);
    }
    let request = AddPartitions {
        transactional_id: id.clone(),
        producer,
        partitions: partitions.to_vec(),
        client_transaction_version: ADDED_BY_BROKERS,
    };
    let added = shard.request(coordinators, |coordinator, to, now| {
        coordinator.handle_add_partitions(to, request, now)
    });
    all(added.await.unwrap_or_else(|error| error))
}

/// `partitions` must be sorted.
fn request_of(
    transaction: &ProducerTransaction,
    partitions: &[TopicPartition],
) -> AddPartitionsToTxnRequest {
    let mut topics: Vec<AddPartitionsToTxnTopic> = Vec::new();
    for partition in partitions {
        match topics.last_mut() {
            Some(last) if last.name == partition.topic => {
                last.partitions.push(partition.partition.0);
            }
            _ => topics.push(AddPartitionsToTxnTopic {
                name: partition.topic.clone(),
                partitions: vec![partition.partition.0],
                ..Default::default()
            }),
        }
    }
    AddPartitionsToTxnRequest {
        transactions: vec![AddPartitionsToTxnTransaction {
            transactional_id: transaction.transactional_id.clone(),
            producer_id: transaction.producer.id.0,
            producer_epoch: transaction.producer.epoch.0,
            verify_only: !transaction.adds_partitions(),
            topics,
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use ottla_coordinator::TransactionalProducer;
    use ottla_types::{ProducerEpoch, ProducerId};

    use super::*;

    fn transaction(added_by: AddedBy, asked_for: AskedFor) -> ProducerTransaction {
        ProducerTransaction {
            transactional_id: "id".into(),
            producer: TransactionalProducer {
                id: ProducerId(1),
                epoch: ProducerEpoch(3),
            },
            added_by,
            asked_for,
        }
    }

    /// A producer fails for good at an error that it does not know.
    #[test]
    fn producers_get_errors_that_they_know() {
        let of = |error, added_by| result_of(error, &transaction(added_by, AskedFor::Produce));
        assert_eq!(of(ErrorCode::None, AddedBy::Broker), Ok(()));
        for (error, added_by, expected) in [
            (
                ErrorCode::ProducerFenced,
                AddedBy::Broker,
                ErrorCode::InvalidProducerEpoch,
            ),
            (
                ErrorCode::TransactionAbortable,
                AddedBy::Client,
                ErrorCode::InvalidTxnState,
            ),
            (
                ErrorCode::TransactionAbortable,
                AddedBy::ClientThatMayAbort,
                ErrorCode::TransactionAbortable,
            ),
            (
                ErrorCode::ConcurrentTransactions,
                AddedBy::Client,
                ErrorCode::NotEnoughReplicas,
            ),
            (
                ErrorCode::ConcurrentTransactions,
                AddedBy::Broker,
                ErrorCode::ConcurrentTransactions,
            ),
        ] {
            assert_eq!(of(error, added_by), Err(expected), "{error} {added_by:?}");
        }
    }

    #[test]
    fn an_absent_coordinator_is_an_error_that_is_retried() {
        for error in [
            ErrorCode::NetworkException,
            ErrorCode::CoordinatorLoadInProgress,
            ErrorCode::CoordinatorNotAvailable,
            ErrorCode::NotCoordinator,
        ] {
            let of = |asked_for| result_of(error, &transaction(AddedBy::Broker, asked_for));
            assert_eq!(of(AskedFor::Produce), Err(ErrorCode::NotEnoughReplicas));
            assert_eq!(of(AskedFor::Coordinator), Err(error));
        }
    }

    #[test]
    fn a_request_names_each_topic_once() {
        let partitions = [("a", 0), ("a", 1), ("b", 0)];
        let partitions = partitions.map(|(topic, index)| TopicPartition::new(topic, index));
        for (added_by, verify_only) in [(AddedBy::Broker, false), (AddedBy::Client, true)] {
            let request = request_of(&transaction(added_by, AskedFor::Produce), &partitions);
            let asked = &request.transactions[0];
            assert_eq!(asked.verify_only, verify_only);
            let indexes = asked.topics.iter().map(|topic| topic.partitions.clone());
            assert_eq!(indexes.collect::<Vec<_>>(), [vec![0, 1], vec![0]]);
        }
    }
}
