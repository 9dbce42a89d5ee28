//! Requests of former leaders that arrive late. A leader asks the controller for a smaller ISR, the
//! network delays its request, and when it arrives, another replica leads the partition, or the
//! same replica in a later epoch. The controller must refuse it, because replicas in the requested
//! ISR might lack records that the current leader has committed.
//!
//! A client sends the requests in the name of brokers that still have the registration with which
//! they led; requests of former processes would be refused for their broker epoch.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ottla_client::Client;
use ottla_metadata::{MetadataImage, PartitionRegistration, TopicImage};
use ottla_protocol::messages::AlterPartitionRequest;
use ottla_protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use ottla_sync::simulation::{Host, Random, stream};
use ottla_sync::thread::JoinHandle;
use ottla_sync::time::sleep;
use ottla_testkit::client_histories::workload::TOPICS;
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId, Uuid};

use crate::clients::{on, unconnected};
use crate::cluster::Cluster;

/// Only the newest terms of each partition are remembered.
const REMEMBERED: usize = 4;

/// The term of a leader, as seen in the metadata.
#[derive(Clone)]
struct Term {
    leader: BrokerId,
    /// The registration of the leader.
    broker_epoch: BrokerEpoch,
    leader_epoch: LeaderEpoch,
    partition_epoch: i32,
}

/// A request that the network has delayed.
struct Late {
    topic_id: Uuid,
    partition: PartitionIndex,
    term: Term,
    /// The present epoch of the partition is this or a later one.
    now: LeaderEpoch,
}

pub(crate) struct FormerLeaders {
    random: Random,
    terms: BTreeMap<(TopicId, PartitionIndex), Vec<Term>>,
    late: Rc<RefCell<Vec<Late>>>,
    is_over: Rc<Cell<bool>>,
    sending: JoinHandle<Result<u64, String>>,
}

impl FormerLeaders {
    pub fn start(cluster: &Cluster) -> FormerLeaders {
        let (late, is_over): (Rc<RefCell<Vec<Late>>>, Rc<Cell<bool>>) = Default::default();
        let controllers = cluster.controllers();
        let (waiting, ended) = (late.clone(), is_over.clone());
        let sending = on(&Host::new("former-leader"), move || async move {
            let client = unconnected(&controllers[0]);
            let mut refused = 0;
            while !ended.get() {
                sleep(Duration::from_millis(200)).await;
                let Some(late) = waiting.borrow_mut().pop() else {
                    continue;
                };
                for address in &controllers {
                    match send(&client, address, &late).await {
                        Ok(ErrorCode::None) => return Err(late.taken()),
                        Ok(ErrorCode::NotController) => {}
                        Ok(_) => refused += 1,
                        Err(error) => tracing::debug!(address, "a late request: {error:#}"),
                    }
                }
            }
            Ok(refused)
        });
        FormerLeaders {
            random: stream("former-leaders"),
            terms: BTreeMap::new(),
            late,
            is_over,
            sending,
        }
    }

    /// Stores the current leaders, and sends a delayed request of an ended term.
    pub fn observe(&mut self, cluster: &Cluster) {
        let Some(image) = cluster.newest_metadata() else {
            return;
        };
        let mut ended = Vec::new();
        let topics = TOPICS.iter().filter_map(|name| image.topics.by_name(name));
        for topic in topics.cloned().collect::<Vec<Arc<TopicImage>>>() {
            for (index, partition) in topic.partitions() {
                let terms = self.terms.entry((topic.id, index)).or_default();
                note(terms, &image, partition);
                let now = partition.leader_epoch;
                let is_ended = |term: &&Term| {
                    term.leader_epoch < now
                        && image.cluster.is_broker_active(term.leader)
                        && image.cluster.broker_epoch(term.leader) == term.broker_epoch
                };
                ended.extend(terms.iter().filter(is_ended).map(|term| Late {
                    topic_id: topic.id,
                    partition: index,
                    term: term.clone(),
                    now,
                }));
            }
        }
        if !ended.is_empty() {
            let late = ended.swap_remove(self.random.index(ended.len()));
            *self.late.borrow_mut() = vec![late];
        }
    }

    /// Waits for the client. Returns how many requests were refused.
    pub fn settle(self) -> Result<u64, String> {
        self.is_over.set(true);
        self.sending.join().expect("it ends")
    }
}

fn note(terms: &mut Vec<Term>, image: &MetadataImage, partition: &PartitionRegistration) {
    let leader = partition.leader;
    let is_known = |term: &Term| term.leader_epoch == partition.leader_epoch;
    if image.cluster.broker(leader).is_none() || terms.iter().any(is_known) {
        return;
    }
    terms.push(Term {
        leader,
        broker_epoch: image.cluster.broker_epoch(leader),
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch.value(),
    });
    if terms.len() > REMEMBERED {
        terms.remove(0);
    }
}

impl Late {
    /// The leader asks to be the only member of the ISR.
    fn request(&self, version: i16) -> AlterPartitionRequest {
        let (leader, epoch) = (self.term.leader.value(), self.term.broker_epoch.value());
        let mut partition = PartitionData {
            partition_index: self.partition.value(),
            leader_epoch: self.term.leader_epoch.value(),
            partition_epoch: self.term.partition_epoch,
            ..Default::default()
        };
        if version < FIRST_VERSION_WITH_EPOCHS {
            partition.new_isr = vec![leader];
        } else {
            partition.new_isr_with_epochs = vec![BrokerState {
                broker_id: leader,
                broker_epoch: epoch,
                ..Default::default()
            }];
        }
        AlterPartitionRequest {
            broker_id: leader,
            broker_epoch: epoch,
            topics: vec![TopicData {
                topic_id: self.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn taken(&self) -> String {
        let (leader, epoch) = (self.term.leader, self.term.leader_epoch);
        let (partition, now) = (self.partition, self.now);
        format!(
            "former leaders: the controller takes an ISR for partition {partition} from broker {leader}, which led it in \
             epoch {epoch}, in epoch {now} or later"
        )
    }
}

/// From this version on, AlterPartition has the epochs of the brokers in the ISR.
const FIRST_VERSION_WITH_EPOCHS: i16 = 3;

async fn send(client: &Client, address: &str, late: &Late) -> Result<ErrorCode> {
    let connection = client.connection(address).await?;
    let response = connection
        .send_with(|version| late.request(version))
        .await?;
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let code = match response.error_code {
        0 => partitions.next().map(|partition| partition.error_code),
        code => Some(code),
    };
    Ok(code.map_or(ErrorCode::UnknownServerError, ErrorCode::from_code))
}
