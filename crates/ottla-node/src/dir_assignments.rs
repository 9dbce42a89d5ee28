//! Reports the log directories of this broker's replicas to the controller (KIP-858).
//!
//! The controller needs them to elect new leaders when a directory fails. Code that opens or moves
//! a log queues an assignment here. One task sends the assignments in batches, one request at a
//! time, and retries failed ones with a backoff. If a replica is assigned several times, the last
//! assignment counts.
//!
//! Kafka: `AssignmentsManager`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_metadata::MetadataImage;
use ottla_protocol::messages::assign_replicas_to_dirs_request::{
    DirectoryData, PartitionData, TopicData,
};
use ottla_protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_types::{BrokerId, DirectoryId, ErrorCode, PartitionIndex, TopicId};

use crate::node::Node;

#[cfg(test)]
mod tests;

/// The maximum number of replicas in one request.
const MAX_ASSIGNMENTS_PER_REQUEST: usize = 2_250;
/// How long assignments are collected before a request. Also the first backoff after a failed
/// request; each further one is twice as long.
const GATHER: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Called when the controller has committed the assignment.
pub type OnAssigned = Box<dyn FnOnce() + Send>;

/// The assignments that the controller has not taken yet.
#[derive(Debug)]
pub struct DirAssignments {
    node: Arc<Node>,
    queue: Mutex<Queue>,
    queued: Notify,
    /// Notified when an assignment must be sent without waiting for further assignments.
    hurried: Notify,
}

type Replica = (TopicId, PartitionIndex);

struct Assignment {
    directory: DirectoryId,
    on_assigned: Option<OnAssigned>,
}

#[derive(Default)]
struct Queue {
    ready: BTreeMap<Replica, Assignment>,
    in_flight: BTreeMap<Replica, Assignment>,
    /// Consecutive requests that failed as a whole.
    failures: u32,
    /// Consecutive requests whose answered assignments were all refused, since an assignment was
    /// last queued.
    refusals: u32,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.ready.len() + self.in_flight.len())
    }
}

impl DirAssignments {
    pub fn new(node: Arc<Node>) -> DirAssignments {
        DirAssignments {
            node,
            queue: Mutex::default(),
            queued: Notify::new(),
            hurried: Notify::new(),
        }
    }

    /// Queues the assignment of a replica of this broker to a directory.
    pub fn assign(
        &self,
        topic_id: TopicId,
        partition: PartitionIndex,
        directory: DirectoryId,
        on_assigned: Option<OnAssigned>,
    ) {
        let assignment = Assignment {
            directory,
            on_assigned,
        };
        let is_delayed = self.queue.lock().add((topic_id, partition), assignment);
        if is_delayed {
            self.hurry();
        }
        self.queued.notify_one();
    }

    /// Sends the queued assignments without waiting for further ones. Used when appends are held
    /// until the controller answers.
    pub fn hurry(&self) {
        self.hurried.notify_one();
    }

    /// Sends the queued assignments until the broker stops.
    pub async fn send_all(self: Arc<Self>) {
        let (assignments, node) = (&*self, &*self.node);
        loop {
            let delay = assignments.queue.lock().delay();
            let ready = async {
                match delay {
                    Some(delay) => ottla_sync::select! {
                        () = ottla_sync::time::sleep(delay) => {}
                        () = assignments.hurried.notified() => {}
                    },
                    None => assignments.queued.notified().await,
                }
            };
            ottla_sync::select! {
                () = ready => {}
                () = node.context.stopping() => return,
            }
            if delay.is_none() {
                // Collects the assignments that arrive together.
                continue;
            }
            let taken = assignments
                .queue
                .lock()
                .take(node.context.broker_id(), &node.context.metadata());
            let Some(mut request) = taken else {
                continue;
            };
            request.broker_id = node.context.broker_id().value();
            request.broker_epoch = node.broker_epoch().value();
            let response = node.ask_controller(request).await;
            let accepted = assignments.queue.lock().on_response(response);
            for on_assigned in accepted {
                on_assigned();
            }
        }
    }
}

impl DirAssignments {
    /// The directory that is queued for the replica.
    pub fn queued(&self, topic_id: TopicId, partition: i32) -> Option<DirectoryId> {
        let queue = self.queue.lock();
        let replica = (topic_id, PartitionIndex(partition));
        let ready = queue.ready.get(&replica);
        let assignment = ready.or_else(|| queue.in_flight.get(&replica))?;
        Some(assignment.directory)
    }
}

impl Queue {
    /// Returns whether refusals of other assignments would delay this one.
    fn add(&mut self, replica: Replica, assignment: Assignment) -> bool {
        self.ready.insert(replica, assignment);
        std::mem::take(&mut self.refusals) > 0 && self.failures == 0
    }

    /// The time to wait before the next request; `None` if nothing is queued.
    fn delay(&self) -> Option<Duration> {
        match self.ready.len() {
            0 => None,
            _ if self.failures.max(self.refusals) > 0 => {
                let doublings = self.failures.max(self.refusals).min(16);
                Some(GATHER.saturating_mul(1 << doublings).min(MAX_BACKOFF))
            }
            ready if ready > MAX_ASSIGNMENTS_PER_REQUEST => Some(Duration::ZERO),
            _ => Some(GATHER),
        }
    }

    /// The next request, without the broker id and epoch. Drops assignments that are obsolete.
    fn take(
        &mut self,
        broker: BrokerId,
        image: &MetadataImage,
    ) -> Option<AssignReplicasToDirsRequest> {
        while self.in_flight.len() < MAX_ASSIGNMENTS_PER_REQUEST
            && let Some(((topic_id, index), assignment)) = self.ready.pop_first()
        {
            let topic = image.topics.by_id(topic_id);
            let partition = topic.and_then(|topic| topic.partition(index));
            if partition.is_some_and(|partition| partition.is_replica(broker)) {
                self.in_flight.insert((topic_id, index), assignment);
            }
        }
        (!self.in_flight.is_empty()).then(|| request_of(&self.in_flight))
    }

    /// Handles the response. Returns the callbacks of the accepted assignments. A refused
    /// assignment is retried, unless it was replaced in the meantime.
    fn on_response(
        &mut self,
        response: Result<AssignReplicasToDirsResponse, ErrorCode>,
    ) -> Vec<OnAssigned> {
        let mut sent = std::mem::take(&mut self.in_flight);
        let mut accepted = Vec::new();
        let (mut taken_down, mut refused) = (0, 0);
        let error = match &response {
            Ok(response) => ErrorCode::from_code(response.error_code),
            Err(code) => *code,
        };
        match response {
            Ok(response) if error == ErrorCode::None => {
                self.failures = 0;
                for topic in response.directories.iter().flat_map(|dir| &dir.topics) {
                    for partition in &topic.partitions {
                        let replica = (topic.topic_id, PartitionIndex(partition.partition_index));
                        let code = ErrorCode::from_code(partition.error_code);
                        if code == ErrorCode::None {
                            taken_down += 1;
                            let assignment = sent.remove(&replica);
                            accepted.extend(assignment.and_then(|sent| sent.on_assigned));
                        } else {
                            refused += 1;
                            tracing::debug!(
                                topic_id = %replica.0, partition = replica.1.value(),
                                "the directory of a replica was not taken down: {code}"
                            );
                        }
                    }
                }
                // Some refusals are for good, until the replica is moved or deleted.
                self.refusals = match (taken_down, refused) {
                    (0, 1..) => self.refusals.saturating_add(1),
                    _ => 0,
                };
            }
            _ => {
                self.failures += 1;
                tracing::warn!(
                    replicas = sent.len(),
                    "could not report log directories to the controller; retrying: {error}"
                );
            }
        }
        for (replica, assignment) in sent {
            self.ready.entry(replica).or_insert(assignment);
        }
        accepted
    }
}

fn request_of(assignments: &BTreeMap<Replica, Assignment>) -> AssignReplicasToDirsRequest {
    let mut by_directory = BTreeMap::<DirectoryId, BTreeMap<TopicId, Vec<PartitionData>>>::new();
    for ((topic_id, index), assignment) in assignments {
        let topics = by_directory.entry(assignment.directory).or_default();
        topics.entry(*topic_id).or_default().push(PartitionData {
            partition_index: index.value(),
            ..Default::default()
        });
    }
    let topics = |topics: BTreeMap<TopicId, Vec<PartitionData>>| {
        let topics = topics.into_iter().map(|(topic_id, partitions)| TopicData {
            topic_id,
            partitions,
            ..Default::default()
        });
        topics.collect()
    };
    let directories = by_directory.into_iter().map(|(id, of_dir)| DirectoryData {
        id,
        topics: topics(of_dir),
        ..Default::default()
    });
    AssignReplicasToDirsRequest {
        directories: directories.collect(),
        ..Default::default()
    }
}
