//! Sends the markers of ended transactions to the leaders of their partitions, here or on other
//! brokers.
//!
//! Markers for another broker wait for the request in flight. The next request contains all markers
//! that arrived during that time, of any transaction. A failed marker is reported to the
//! coordinator after a pause, which then sends it to the current leader.
//!
//! Invariant: each partition of each command is answered exactly once, unless the coordinator is
//! gone.
//!
//! Kafka: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::transaction::Markers;
use ottla_metadata::MetadataImage;
use ottla_sync::Mutex;
use ottla_sync::collections::{HashMap, HashSet};
use ottla_types::{BrokerId, ErrorCode, TopicPartition};

use super::marker_request::{self, AnsweredMarkers};
use super::write_markers::{EndedTransaction, request_timeout, write_markers};
use crate::groups::Groups;
use crate::surroundings::Surroundings;
use ottla_net::PeerError;

/// Pause before a failed marker is reported.
const RETRY: Duration = Duration::from_millis(50);

/// The coordinator of a transaction, which receives the results of its markers.
pub trait MarkerAnswers: Send + Sync {
    /// Whether the coordinator still leads its partition.
    fn are_awaited(&self) -> bool;

    fn tell(&self, markers: &Markers, answers: &[(TopicPartition, ErrorCode)]);
}

/// Markers of one transaction for partitions of one leader.
struct Batch {
    markers: Markers,
    answers: Arc<dyn MarkerAnswers>,
}

pub struct MarkerSender {
    /// Markers complete the transactional offsets of groups.
    groups: Arc<Groups>,
    /// Waiting batches by destination. An entry exists while a task is sending to the broker.
    waiting: Mutex<HashMap<BrokerId, Vec<Batch>>>,
}

impl std::fmt::Debug for MarkerSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarkerSender")
    }
}

/// Where a marker has to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Destination {
    Here,
    Broker(BrokerId),
    /// The partition has no known leader at present.
    Unknown,
    /// The partition does not exist any more and needs no marker.
    Nowhere,
}

impl MarkerSender {
    pub(super) fn new(groups: Arc<Groups>) -> Self {
        MarkerSender {
            groups,
            waiting: Mutex::default(),
        }
    }

    pub fn send(self: &Arc<Self>, markers: Markers, answers: Arc<dyn MarkerAnswers>) {
        let surroundings = &self.groups.surroundings;
        let image = surroundings.context.metadata().clone();
        let mut by_destination: BTreeMap<Destination, Vec<TopicPartition>> = BTreeMap::new();
        for partition in &markers.partitions {
            let destination = destination_of(surroundings, &image, partition);
            let partitions = by_destination.entry(destination).or_default();
            partitions.push(partition.clone());
        }
        for (destination, partitions) in by_destination {
            let batch = Batch {
                markers: Markers {
                    partitions,
                    ..markers.clone()
                },
                answers: Arc::clone(&answers),
            };
            match destination {
                Destination::Here => drop(ottla_sync::task::spawn(
                    batch.write_here(Arc::clone(&self.groups)),
                )),
                Destination::Broker(id) => self.send_to(id, batch),
                Destination::Unknown => batch.answer_all(ErrorCode::NotLeaderOrFollower),
                Destination::Nowhere => batch.answer_all(ErrorCode::None),
            }
        }
    }

    fn send_to(self: &Arc<Self>, id: BrokerId, batch: Batch) {
        let mut waiting = self.waiting.lock();
        if let Some(batches) = waiting.get_mut(&id) {
            batches.push(batch);
            return;
        }
        waiting.insert(id, vec![batch]);
        drop(waiting);
        let sender = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            while let Some(batches) = sender.next(id) {
                exchange(&sender.groups.surroundings, id, batches).await;
            }
        });
    }

    fn next(&self, id: BrokerId) -> Option<Vec<Batch>> {
        let mut waiting = self.waiting.lock();
        let batches = std::mem::take(waiting.get_mut(&id)?);
        if batches.is_empty() {
            waiting.remove(&id);
            return None;
        }
        Some(batches)
    }
}

fn destination_of(
    surroundings: &Surroundings,
    image: &MetadataImage,
    partition: &TopicPartition,
) -> Destination {
    let Some(registration) = image
        .topics
        .partition(&partition.topic, partition.partition)
    else {
        return Destination::Nowhere;
    };
    let leader = registration.leader;
    if leader == surroundings.context.broker_id() {
        return Destination::Here;
    }
    match image.cluster.broker(leader) {
        Some(registered) if !registered.fenced => Destination::Broker(leader),
        _ => Destination::Unknown,
    }
}

impl Batch {
    fn ended(&self) -> EndedTransaction {
        EndedTransaction {
            producer: self.markers.producer,
            end: self.markers.end,
        }
    }

    async fn write_here(self, groups: Arc<Groups>) {
        let partitions = self.markers.partitions.clone();
        let mut answers = write_markers(&groups, self.ended(), partitions).await;
        self.add_missing(&mut answers);
        self.answer(answers);
    }

    /// A partition without a result is retried.
    fn add_missing(&self, answers: &mut Vec<(TopicPartition, ErrorCode)>) {
        let partitions = &self.markers.partitions;
        if answers.len() == partitions.len() {
            return;
        }
        let answered: HashSet<_> = answers.iter().map(|(partition, _)| partition).collect();
        let missing = partitions.iter().filter(|it| !answered.contains(it));
        let missing: Vec<_> = missing
            .map(|partition| (partition.clone(), ErrorCode::NetworkException))
            .collect();
        drop(answered);
        answers.extend(missing);
    }

    fn answer_all(self, error: ErrorCode) {
        let partitions = self.markers.partitions.iter();
        let answers = partitions.map(|it| (it.clone(), error)).collect();
        // In a task, so not on the stack of the calling coordinator.
        ottla_sync::task::spawn(async move { self.answer(answers) });
    }

    fn answer(self, answers: Vec<(TopicPartition, ErrorCode)>) {
        let (written, failed): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|(_, error)| *error == ErrorCode::None);
        if !written.is_empty() {
            self.answers.tell(&self.markers, &written);
        }
        if failed.is_empty() {
            return;
        }
        let (partition, error) = &failed[0];
        let id = &self.markers.transactional_id;
        tracing::debug!(%partition, "a marker of transactional id {id} is not written yet: {error}");
        ottla_sync::task::spawn(async move {
            ottla_sync::time::sleep(RETRY).await;
            self.answers.tell(&self.markers, &failed);
        });
    }
}

/// Sends the markers of several transactions to another broker.
async fn exchange(surroundings: &Surroundings, id: BrokerId, mut batches: Vec<Batch>) {
    batches.retain(|batch| batch.answers.are_awaited());
    if batches.is_empty() {
        return;
    }
    let request = marker_request::request_of(batches.iter().map(|batch| &batch.markers));
    let asked = async {
        let timeout = request_timeout(surroundings);
        let connection = surroundings
            .peers
            .connection(&surroundings.context, id, timeout)
            .await?;
        connection.send(&request).await
    };
    let answered = match asked.await {
        Ok(response) => AnsweredMarkers::of(&response),
        Err(error) => {
            complain(id, &error);
            AnsweredMarkers::default()
        }
    };
    for batch in batches {
        let mut answers = answered.to(&batch.markers);
        batch.add_missing(&mut answers);
        batch.answer(answers);
    }
}

fn complain(id: BrokerId, error: &PeerError) {
    tracing::info!("transaction markers cannot be sent to broker {id} yet: {error}");
}

#[cfg(test)]
mod tests {
    use ottla_coordinator::{TransactionEnd, TransactionalProducer};
    use ottla_types::{ProducerEpoch, ProducerId};

    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<(TopicPartition, ErrorCode)>>);

    impl MarkerAnswers for Recorder {
        fn are_awaited(&self) -> bool {
            true
        }

        fn tell(&self, _: &Markers, answers: &[(TopicPartition, ErrorCode)]) {
            self.0.lock().extend_from_slice(answers);
        }
    }

    fn of(index: i32) -> TopicPartition {
        TopicPartition::new("topic", index)
    }

    /// The markers of three partitions.
    fn batch(answers: Arc<dyn MarkerAnswers>) -> Batch {
        let markers = Markers {
            transactional_id: "id".into(),
            producer: TransactionalProducer {
                id: ProducerId(1),
                epoch: ProducerEpoch(3),
            },
            end: TransactionEnd {
                is_commit: true,
                coordinator_epoch: 2,
                transaction_version: 2,
            },
            partitions: (0..3).map(of).collect(),
        };
        Batch { markers, answers }
    }

    /// A transaction without an answer for a partition would stay open there, and read_committed
    /// consumers would stop at it.
    #[tokio::test]
    async fn a_partition_without_a_result_is_reported_after_a_pause() {
        let recorder = Arc::new(Recorder::default());
        let batch = batch(Arc::<Recorder>::clone(&recorder));
        let mut answers = vec![(of(1), ErrorCode::None)];
        batch.add_missing(&mut answers);
        batch.answer(answers);
        assert_eq!(*recorder.0.lock(), [(of(1), ErrorCode::None)]);
        let deadline = ottla_sync::time::now() + Duration::from_secs(60);
        while recorder.0.lock().len() < 3 {
            assert!(ottla_sync::time::now() < deadline, "nothing is reported");
            ottla_sync::time::sleep(RETRY).await;
        }
        let missing = ErrorCode::NetworkException;
        assert_eq!(recorder.0.lock()[1..], [(of(0), missing), (of(2), missing)]);
    }

    /// Markers for a deleted topic are written nowhere, and the transaction can end.
    #[tokio::test]
    async fn one_response_for_all_partitions_is_reported_for_each() {
        let recorder = Arc::new(Recorder::default());
        batch(Arc::<Recorder>::clone(&recorder)).answer_all(ErrorCode::None);
        let deadline = ottla_sync::time::now() + Duration::from_secs(60);
        while recorder.0.lock().is_empty() {
            assert!(ottla_sync::time::now() < deadline, "nothing is reported");
            ottla_sync::task::yield_now().await;
        }
        let all = (0..3).map(|index| (of(index), ErrorCode::None));
        assert_eq!(*recorder.0.lock(), all.collect::<Vec<_>>());
    }
}
