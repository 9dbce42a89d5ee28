//! The share partitions that are led here, by group.
//! Source: `SharePartitionCache`, `SharePartitionManager.SharePartitionListener`.

use std::sync::Arc;

use ottla_coordinator::persister::SharePartitionKey;
use ottla_metadata::MetadataDelta;
use ottla_sync::RwLock;
use ottla_types::{ErrorCode, LeaderEpoch, TopicIdPartition};
use std::collections::BTreeMap;

use super::coordinators::ShareCoordinators;
use super::led_partition::LedPartition;
use crate::planted::{self, Bug};
use ottla_partition::partition::Partition;

#[derive(Debug)]
pub struct LedPartitions {
    coordinators: Arc<ShareCoordinators>,
    by_key: Arc<RwLock<ByKey>>,
}

type ByKey = BTreeMap<SharePartitionKey, Arc<LedPartition>>;

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
        LedPartitions {
            coordinators,
            by_key: Arc::default(),
        }
    }

    pub fn get(&self, group_id: &str, partition: TopicIdPartition) -> Option<Arc<LedPartition>> {
        self.by_key
            .read()
            .get(&key_of(group_id, partition))
            .cloned()
    }

    /// The share partition, loaded where nobody has asked for it yet; or why it is not here.
    pub fn get_or_open(
        &self,
        group_id: &str,
        topic: &str,
        partition: TopicIdPartition,
    ) -> Result<Arc<LedPartition>, ErrorCode> {
        let key = key_of(group_id, partition);
        if let Some(led) = self.by_key.read().get(&key) {
            return Ok(Arc::clone(led));
        }
        self.open(key, || led_here(&self.coordinators, topic, partition))
    }

    /// Whether the partition is led here is looked at under the lock that `close_if` takes. Were it looked at before, then
    /// 1. a thread finds that this broker leads the partition,
    /// 2. another puts the end of that in force, and closes all share partitions that there are,
    /// 3. the first one takes up one more, which nobody closes.
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
        let coordinators = Arc::clone(&self.coordinators);
        let led_partitions = Arc::downgrade(&self.by_key);
        let forget_it = move |closed: &Arc<LedPartition>| {
            if let Some(by_key) = led_partitions.upgrade() {
                forget(&mut by_key.write(), closed);
            }
        };
        let led = LedPartition::open(coordinators, key.clone(), local, leader_epoch, forget_it);
        by_key.insert(key, Arc::clone(&led));
        Ok(led)
    }

    /// Nobody of the group reads here any more.
    pub fn close_group(&self, group_id: &str) {
        self.close_if(|led| *led.key.group_id == *group_id);
    }

    /// Partitions whose lead has changed are others' to hand out, or have to be taken up anew.
    pub(super) fn follow_leadership(&self, delta: &MetadataDelta) {
        if self.by_key.read().is_empty() {
            return;
        }
        let changes = delta.local_changes(self.coordinators.surroundings.context.broker_id());
        let gone = changes.deleted.iter().chain(&changes.followers);
        for replica in gone {
            self.close_if(|led| {
                let partition = &led.partition.topic_partition;
                partition.topic == replica.topic && partition.partition == replica.partition
            });
        }
        for replica in &changes.leaders {
            self.close_if(|led| {
                let partition = &led.partition.topic_partition;
                partition.topic == replica.topic
                    && partition.partition == replica.partition
                    && led.leader_epoch != replica.registration.leader_epoch
            });
        }
    }

    fn close_if(&self, is_over: impl Fn(&LedPartition) -> bool) {
        let mut over = Vec::new();
        self.by_key.write().retain(|_, led| {
            let is_over = is_over(led);
            if is_over {
                over.push(Arc::clone(led));
            }
            !is_over
        });
        for led in over {
            led.close(ErrorCode::NotLeaderOrFollower.into());
        }
    }
}

/// It is closed, and loaded anew by whoever asks next.
fn forget(by_key: &mut ByKey, closed: &Arc<LedPartition>) {
    if by_key
        .get(&closed.key)
        .is_some_and(|led| Arc::ptr_eq(led, closed))
    {
        by_key.remove(&closed.key);
    }
}

/// The partition and the epoch in which this broker leads it, by the image in force: that is replaced before
/// `follow_leadership` is called, and a replica may hear of it later.
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

    use ottla_config::BrokerConfig;
    use ottla_net::{Authorizer, BrokerPeers};
    use ottla_node::auto_topic_creation::AutoTopicCreation;
    use ottla_node::producer_id_blocks::ProducerIdBlocks;
    use ottla_partition::test_host::{TOPIC, TOPIC_ID, TestHost};
    use ottla_types::PartitionIndex;

    use super::*;
    use crate::surroundings::Surroundings;

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
    async fn what_is_taken_up_while_the_lead_is_given_up_is_closed() {
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
                giving_up.close_if(|_| true);
                closed.send(()).expect("the test waits");
            });
            // It may come before this one has decided, or after it has taken the share partition up.
            let _ = is_closed.recv_timeout(Duration::from_millis(100));
            found
        });
        let opened = opened.expect("it is led here");
        let _ = is_closed.recv_timeout(Duration::from_secs(20));
        assert!(opened.failure().is_some(), "nobody else closes it");
        assert_eq!(led.by_key.read().len(), 0);
    }
}
