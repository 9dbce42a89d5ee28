//! ISR proposals to the controller, batched over all partitions.
//!
//! One request is in flight at a time, with the oldest unanswered proposal of each partition; later
//! proposals go with the next. A request that fails as a whole is retried forever: only the
//! controller can tell that a proposal was not applied.
//!
//! Kafka: `DefaultAlterPartitionManager`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use ottla_protocol::messages::{AlterPartitionRequest, AlterPartitionResponse};
use ottla_replica::{AlterPartition, AlteredPartition, Event};
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_types::{
    BrokerId, ErrorCode, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicIdPartition,
};
use std::time::Instant;

use super::context::ReplicationContext;
use crate::partition::Partition;

/// Pause before a failed request or a refused proposal is sent again.
const RETRY: Duration = Duration::from_millis(50);

/// The unanswered proposals.
#[derive(Debug, Default)]
pub struct AlterPartitions {
    queue: Mutex<Queue>,
    submitted: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// By partition, oldest first.
    proposals: BTreeMap<TopicIdPartition, VecDeque<Proposal>>,
    /// A task is sending them.
    is_sending: bool,
}

#[derive(Debug)]
struct Proposal {
    partition: Arc<Partition>,
    proposal: AlterPartition,
    /// The earliest time to send it.
    ready_at: Instant,
}

type Results = BTreeMap<TopicIdPartition, Result<AlteredPartition, ErrorCode>>;

impl AlterPartitions {
    /// Sends a proposal to the controller; the partition receives the response as an event. With
    /// `is_again`, the same proposal was refused before, and it is delayed a little.
    pub fn submit(
        self: &Arc<Self>,
        context: &Arc<ReplicationContext>,
        partition: &Arc<Partition>,
        proposal: AlterPartition,
        is_again: bool,
    ) {
        let now = ottla_sync::time::now();
        let proposal = Proposal {
            partition: Arc::clone(partition),
            proposal,
            ready_at: if is_again { now + RETRY } else { now },
        };
        let has_sender = {
            let mut queue = self.queue.lock();
            let key = partition.topic_id_partition();
            queue.proposals.entry(key).or_default().push_back(proposal);
            std::mem::replace(&mut queue.is_sending, true)
        };
        if has_sender {
            self.submitted.notify_one();
            return;
        }
        let (sender, context) = (Arc::clone(self), Arc::clone(context));
        ottla_sync::task::spawn(async move {
            ottla_sync::select! {
                () = sender.send_all(&context) => {}
                () = context.ended() => {}
            }
        });
    }

    /// Sends until all proposals are answered.
    async fn send_all(&self, context: &ReplicationContext) {
        let mut has_complained = false;
        loop {
            let next = self.queue.lock().next(ottla_sync::time::now());
            let sent = match next {
                Next::Nothing => return,
                Next::Wait(until) => {
                    ottla_sync::select! {
                        () = ottla_sync::time::sleep_until(until) => {}
                        () = self.submitted.notified() => {}
                    }
                    continue;
                }
                Next::Send(sent) => sent,
            };
            let request = request_of(context, &sent);
            let error = match context.node.ask_controller(request).await {
                Ok(response) => match ErrorCode::from_code(response.error_code) {
                    ErrorCode::None => {
                        has_complained = false;
                        let results = results_of(&response);
                        if self.on_results(context, sent, results) {
                            continue;
                        }
                        ErrorCode::UnknownServerError
                    }
                    error => error,
                },
                Err(error) => error,
            };
            if !std::mem::replace(&mut has_complained, true) {
                tracing::warn!(
                    "the controller did not accept a change of in-sync replicas; trying again: {error}"
                );
            }
            ottla_sync::time::sleep(RETRY).await;
        }
    }

    /// Passes the results to the partitions. Returns whether all proposals were answered; the
    /// others stay queued.
    fn on_results(
        &self,
        context: &ReplicationContext,
        sent: Vec<(TopicIdPartition, AlterPartition)>,
        mut results: Results,
    ) -> bool {
        let mut are_all_answered = true;
        for (key, proposal) in sent {
            let Some(result) = results.remove(&key) else {
                are_all_answered = false;
                continue;
            };
            let taken = self.queue.lock().take(key);
            let Some(first) = taken else {
                continue;
            };
            if let Err(error) = &result {
                tracing::info!(
                    partition = %first.partition.topic_partition,
                    "the controller refused {:?}: {error}", proposal.new_isr
                );
            }
            let event = Event::PartitionAltered { proposal, result };
            first.partition.notify(&context.host, event);
        }
        are_all_answered
    }
}

/// The next action of the sender.
enum Next {
    Nothing,
    Wait(Instant),
    Send(Vec<(TopicIdPartition, AlterPartition)>),
}

impl Queue {
    /// The oldest proposals of all partitions that are ready. If the queue is empty, the sender
    /// ends.
    fn next(&mut self, now: Instant) -> Next {
        let mut first_ready: Option<Instant> = None;
        let mut ready = Vec::new();
        for (key, proposals) in &self.proposals {
            let Some(first) = proposals.front() else {
                continue;
            };
            if first.ready_at <= now {
                ready.push((*key, first.proposal.clone()));
            } else {
                let earlier = first_ready.map_or(first.ready_at, |at| at.min(first.ready_at));
                first_ready = Some(earlier);
            }
        }
        match first_ready {
            _ if !ready.is_empty() => Next::Send(ready),
            Some(at) => Next::Wait(at),
            None => {
                self.is_sending = false;
                Next::Nothing
            }
        }
    }

    /// Removes the answered proposal.
    fn take(&mut self, key: TopicIdPartition) -> Option<Proposal> {
        let proposals = self.proposals.get_mut(&key)?;
        let first = proposals.pop_front();
        if proposals.is_empty() {
            self.proposals.remove(&key);
        }
        first
    }
}

fn request_of(
    context: &ReplicationContext,
    proposals: &[(TopicIdPartition, AlterPartition)],
) -> AlterPartitionRequest {
    let mut topics: Vec<TopicData> = Vec::new();
    for (key, proposal) in proposals {
        let members = proposal.new_isr.iter().map(|member| BrokerState {
            broker_id: member.broker_id.0,
            broker_epoch: member.broker_epoch.0,
            ..Default::default()
        });
        let partition = PartitionData {
            partition_index: key.partition.0,
            leader_epoch: proposal.leader_epoch.0,
            new_isr_with_epochs: members.collect(),
            partition_epoch: proposal.partition_epoch.0,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(topic) if topic.topic_id == key.topic_id => topic.partitions.push(partition),
            _ => topics.push(TopicData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    AlterPartitionRequest {
        broker_id: context.host.context.broker_id().0,
        broker_epoch: context.node.broker_epoch().0,
        topics,
        ..Default::default()
    }
}

fn results_of(response: &AlterPartitionResponse) -> Results {
    let mut results = Results::new();
    for topic in &response.topics {
        for partition in &topic.partitions {
            let key = TopicIdPartition {
                topic_id: topic.topic_id,
                partition: PartitionIndex(partition.partition_index),
            };
            let result = match ErrorCode::from_code(partition.error_code) {
                ErrorCode::None => Ok(AlteredPartition {
                    leader_epoch: LeaderEpoch(partition.leader_epoch),
                    partition_epoch: PartitionEpoch(partition.partition_epoch),
                    isr: partition.isr.iter().copied().map(BrokerId).collect(),
                }),
                error => Err(error),
            };
            results.insert(key, result);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_host::TestHost;

    /// A proposal for this partition epoch.
    fn proposal(partition: &Arc<Partition>, epoch: i32, ready_at: Instant) -> Proposal {
        Proposal {
            partition: Arc::clone(partition),
            proposal: AlterPartition {
                leader_epoch: LeaderEpoch(1),
                partition_epoch: PartitionEpoch(epoch),
                new_isr: Vec::new(),
            },
            ready_at,
        }
    }

    fn queue_of(proposals: Vec<Proposal>) -> Queue {
        let mut queue = Queue {
            is_sending: true,
            ..Queue::default()
        };
        for proposal in proposals {
            let key = proposal.partition.topic_id_partition();
            queue.proposals.entry(key).or_default().push_back(proposal);
        }
        queue
    }

    /// The partition epochs of the proposals that are sent next.
    fn sent(queue: &mut Queue, now: Instant) -> Vec<i32> {
        match queue.next(now) {
            Next::Send(sent) => sent.iter().map(|(_, it)| it.partition_epoch.0).collect(),
            Next::Wait(_) | Next::Nothing => Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_request_has_the_oldest_proposal_of_each_partition() {
        let host = TestHost::start();
        let partitions = host.lead_topics(2);
        let (one, other) = (&partitions[0], &partitions[1]);
        let now = ottla_sync::time::now();
        let later = now + RETRY;
        let mut queue = queue_of(vec![
            proposal(one, 1, now),
            proposal(one, 2, now),
            proposal(other, 5, later),
        ]);
        assert_eq!(sent(&mut queue, now), [1]);
        assert_eq!(sent(&mut queue, now), [1], "it is not answered yet");
        let answered = queue.take(one.topic_id_partition());
        assert_eq!(answered.map(|it| it.proposal.partition_epoch.0), Some(1));
        assert_eq!(sent(&mut queue, later), [2, 5]);
        assert!(queue.take(one.topic_id_partition()).is_some());
        assert!(matches!(queue.next(now), Next::Wait(until) if until == later));
        assert!(queue.take(other.topic_id_partition()).is_some());
        assert!(queue.is_sending);
        assert!(matches!(queue.next(now), Next::Nothing));
        assert!(!queue.is_sending, "the next proposal starts a task");
    }

    /// A leader whose proposal is forgotten makes no other: its ISR stays as it is.
    #[tokio::test]
    async fn a_proposal_without_a_result_stays_in_the_queue() {
        let host = TestHost::start();
        let context = ReplicationContext::new(Arc::clone(&host.host), Arc::clone(&host.node));
        let now = ottla_sync::time::now();
        let proposals = host.lead_topics(2);
        let proposals = proposals.iter().map(|it| proposal(it, 1, now)).collect();
        let alter_partitions = AlterPartitions {
            queue: Mutex::new(queue_of(proposals)),
            submitted: Notify::new(),
        };
        let Next::Send(asked) = alter_partitions.queue.lock().next(now) else {
            panic!("both are ready");
        };
        let keys: Vec<TopicIdPartition> = asked.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys.len(), 2);
        let results = Results::from([(keys[0], Err(ErrorCode::FencedLeaderEpoch))]);
        assert!(!alter_partitions.on_results(&context, asked, results));
        let queue = alter_partitions.queue.lock();
        let left: Vec<TopicIdPartition> = queue.proposals.keys().copied().collect();
        assert_eq!(left, keys[1..]);
    }
}
