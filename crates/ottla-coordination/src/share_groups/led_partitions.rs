//! The share partitions led by this broker, by group.
//!
//! Kafka: `SharePartitionCache`, `SharePartitionManager.SharePartitionListener`.

use std::sync::Arc;

use ottla_coordinator::persister::SharePartitionKey;
use ottla_metadata::{LocalReplica, MetadataDelta};
use ottla_sync::RwLock;
use ottla_types::{ErrorCode, LeaderEpoch, TopicIdPartition};

use super::coordinators::ShareCoordinators;
use super::dead_letters::DeadLetterQueues;
use super::led_by_key::LedByKey;
use super::led_partition::{LedPartition, LedServices};
use crate::planted::{self, Bug};
use ottla_partition::partition::Partition;

#[derive(Debug)]
pub struct LedPartitions {
    coordinators: Arc<ShareCoordinators>,
    dead_letters: Arc<DeadLetterQueues>,
    by_key: Arc<RwLock<LedByKey<Arc<LedPartition>>>>,
}

/// The key of a group's share partition.
pub fn key_of(group_id: &str, partition: TopicIdPartition) -> SharePartitionKey {
    SharePartitionKey {
        group_id: group_id.to_owned().into(),
        topic_id: partition.topic_id,
        partition: partition.partition.0,
    }
}

impl LedPartitions {
    pub(super) fn new(coordinators: Arc<ShareCoordinators>) -> Self {
        let dead_letters = DeadLetterQueues::new(Arc::clone(&coordinators.surroundings));
        LedPartitions {
            coordinators,
            dead_letters: Arc::new(dead_letters),
            by_key: Arc::default(),
        }
    }

    pub fn dead_letters(&self) -> &DeadLetterQueues {
        &self.dead_letters
    }

    pub fn get(&self, group_id: &str, partition: TopicIdPartition) -> Option<Arc<LedPartition>> {
        let key = key_of(group_id, partition);
        self.by_key.read().get(&key).cloned()
    }

    /// The share partition, loaded on the first request; an error if it is not led here.
    pub fn get_or_open(
        &self,
        group_id: &str,
        topic: &str,
        partition: TopicIdPartition,
    ) -> Result<Arc<LedPartition>, ErrorCode> {
        let key = key_of(group_id, partition);
        if let Some(led) = self.by_key.read().get(&key) {
            led.keep_open();
            return Ok(Arc::clone(led));
        }
        self.open(key, || led_here(&self.coordinators, topic, partition))
    }

    /// Leadership is checked under the lock that closing takes. If it were checked before:
    /// 1. a thread finds that this broker leads the partition,
    /// 2. another thread applies the loss of leadership and closes all existing share partitions,
    /// 3. the first thread opens another one, which is never closed.
    fn open(
        &self,
        key: SharePartitionKey,
        led_here: impl Fn() -> Result<(Arc<Partition>, LeaderEpoch), ErrorCode>,
    ) -> Result<Arc<LedPartition>, ErrorCode> {
        let too_early = planted::has(Bug::LookBeforeTheLock).then(&led_here);
        let mut by_key = self.by_key.write();
        if let Some(led) = by_key.get(&key) {
            return Ok(Arc::clone(led));
        }
        let (local, leader_epoch) = too_early.unwrap_or_else(led_here)?;
        let services = LedServices {
            coordinators: Arc::clone(&self.coordinators),
            dead_letters: Arc::clone(&self.dead_letters),
        };
        let led_partitions = Arc::downgrade(&self.by_key);
        let forget_it = move |closed: &Arc<LedPartition>| {
            if let Some(by_key) = led_partitions.upgrade() {
                forget(&mut by_key.write(), closed);
            }
        };
        let led = LedPartition::open(services, key.clone(), local, leader_epoch, forget_it);
        by_key.insert(key, Arc::clone(&led));
        Ok(led)
    }

    /// Closes the share partitions of a group without members here, each after its last write.
    pub fn close_group(&self, group_id: &str) {
        let reason = ErrorCode::NotLeaderOrFollower.into();
        let mut over = self.of_group(group_id);
        over.retain(|led| led.close_when_idle(&reason));
        self.close(over);
    }

    /// Checks the share partitions of a group that has a first member here, which may have been kept
    /// open while it had none.
    pub fn confirm_group(&self, group_id: &str) {
        for led in self.of_group(group_id) {
            led.confirm();
        }
    }

    fn of_group(&self, group_id: &str) -> Vec<Arc<LedPartition>> {
        self.by_key.read().of_group(group_id).cloned().collect()
    }

    /// Closes the share partitions whose leader or leader epoch has changed.
    pub(super) fn follow_leadership(&self, delta: &MetadataDelta) {
        if self.by_key.read().is_empty() {
            return;
        }
        let changes = delta.local_changes(self.coordinators.surroundings.context.broker_id());
        let gone = changes.deleted.iter().chain(&changes.followers);
        for replica in gone {
            self.close_partition(replica, |_| true);
        }
        for replica in &changes.leaders {
            let leader_epoch = replica.registration.leader_epoch;
            self.close_partition(replica, |led| led.leader_epoch != leader_epoch);
        }
    }

    /// Takes time proportional to the number of groups that read the partition.
    fn close_partition(&self, replica: &LocalReplica, is_over: impl Fn(&LedPartition) -> bool) {
        let of_partition = || {
            let by_key = self.by_key.read();
            let of_partition = by_key.of_partition(replica.topic_id, replica.partition);
            of_partition.cloned().collect::<Vec<_>>()
        };
        let mut over = of_partition();
        over.retain(|led| is_over(led));
        self.close(over);
    }

    fn close(&self, over: Vec<Arc<LedPartition>>) {
        if over.is_empty() {
            return;
        }
        let mut by_key = self.by_key.write();
        for led in &over {
            forget(&mut by_key, led);
        }
        drop(by_key);
        for led in over {
            led.close(ErrorCode::NotLeaderOrFollower.into());
        }
    }
}

/// Removes a closed share partition; the next request loads it again.
fn forget(by_key: &mut LedByKey<Arc<LedPartition>>, closed: &Arc<LedPartition>) {
    if by_key
        .get(&closed.key)
        .is_some_and(|led| Arc::ptr_eq(led, closed))
    {
        by_key.remove(&closed.key);
    }
}

/// The partition and the epoch in which this broker leads it, by the current image. The image is
/// replaced before `follow_leadership` is called; the replica may be updated later.
fn led_here(
    coordinators: &ShareCoordinators,
    topic: &str,
    partition: TopicIdPartition,
) -> Result<(Arc<Partition>, LeaderEpoch), ErrorCode> {
    let surroundings = &coordinators.surroundings;
    let local = surroundings.local_partition(topic, partition.partition.0)?;
    if local.topic_id != partition.topic_id {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let image = surroundings.context.metadata();
    let registration = image.topics.partition(topic, partition.partition);
    let led = registration.filter(|it| it.leader == surroundings.context.broker_id());
    match led.map(|it| it.leader_epoch) {
        Some(epoch) if local.is_leader() && local.leader_epoch() == epoch => Ok((local, epoch)),
        _ => Err(ErrorCode::NotLeaderOrFollower),
    }
}

#[cfg(test)]
mod tests {
    use ottla_sync::thread_channel;
    use std::time::Duration;

    use super::*;
    use crate::surroundings::Surroundings;
    use ottla_config::BrokerConfig;
    use ottla_coordinator::share_partition::{DeadLetterCause, DeadLetters};
    use ottla_net::{Authorizer, BrokerPeers};
    use ottla_node::auto_topic_creation::AutoTopicCreation;
    use ottla_node::producer_id_blocks::ProducerIdBlocks;
    use ottla_partition::test_host::{TOPIC, TOPIC_ID, TestHost};
    use ottla_types::{Offset, PartitionIndex};

    fn led_partitions_of(host: &TestHost) -> Arc<LedPartitions> {
        let surroundings = Surroundings {
            context: Arc::clone(&host.host.context),
            host: Arc::clone(&host.host),
            partitions: Arc::clone(&host.partitions),
            producer_ids: Arc::new(ProducerIdBlocks::new(Arc::clone(&host.node))),
            auto_topic_creation: Arc::new(AutoTopicCreation::new(Arc::clone(&host.node))),
            peers: BrokerPeers::default(),
            authorizer: Arc::new(Authorizer::allow_all()),
        };
        let config = BrokerConfig::clone(&host.host.context.config());
        let coordinators = ShareCoordinators::new(Arc::new(surroundings), &config);
        Arc::new(LedPartitions::new(Arc::new(coordinators)))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_share_partition_opened_during_a_resignation_is_closed() {
        let host = TestHost::start();
        host.lead(&[]);
        let led = led_partitions_of(&host);
        let partition = TopicIdPartition {
            topic_id: TOPIC_ID,
            partition: PartitionIndex(0),
        };
        let (closed, is_closed) = thread_channel::channel();
        let giving_up = Arc::clone(&led);
        let opened = led.open(key_of("g", partition), || {
            let found = led_here(&led.coordinators, TOPIC, partition);
            let (giving_up, closed) = (Arc::clone(&giving_up), closed.clone());
            ottla_sync::thread::spawn(move || {
                let all = giving_up.of_group("g");
                giving_up.close(all);
                closed.send(()).expect("the test waits");
            });
            // It may come before this one has decided, or after it has taken the share partition up.
            let _ = is_closed.recv_timeout(Duration::from_millis(100));
            found
        });
        let opened = opened.expect("it is led here");
        let _ = is_closed.recv_timeout(Duration::from_secs(20));
        assert!(opened.failure().is_some(), "only this call closes it");
        assert!(led.by_key.read().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn dead_letters_of_a_closed_share_partition_are_left_to_the_next() {
        let host = TestHost::start();
        host.lead(&[]);
        let led = led_partitions_of(&host);
        let id = TopicIdPartition {
            topic_id: TOPIC_ID,
            partition: PartitionIndex(0),
        };
        let (partition, _) = led_here(&led.coordinators, TOPIC, id).expect("it is led here");
        let letters = [DeadLetters {
            first_offset: Offset(0),
            last_offset: Offset(4),
            delivery_count: 1,
            cause: DeadLetterCause::Rejected,
        }];
        let (key, queues) = (key_of("g", id), led.dead_letters());
        for is_open in [false, true] {
            let check = || is_open;
            let is_done = queues.write(&key, &partition, &letters, &check).await;
            // Without a queue, the letters are given up, which archives the records if the share
            // partition is open.
            assert_eq!(is_done, is_open);
        }
    }
}
