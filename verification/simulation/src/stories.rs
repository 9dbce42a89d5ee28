//! Sequences of faults that are hardly ever drawn one after the other. Each run plays one of them,
//! when the drawn faults are healed and all replicas are in sync.

use std::ops::Range;
use std::time::Duration;

use ottla_protocol::messages::FetchRequest;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use ottla_sync::fs::Faults;
use ottla_sync::simulation::{Host, Network, Random, now, stream};
use ottla_sync::thread::sleep;
use ottla_sync::time::timeout;
use ottla_testkit::client_histories::workload::TOPICS;
use ottla_types::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicId};

use crate::clients::{on, unconnected};
use crate::cluster::Cluster;
use crate::node::Node;
use crate::quorum_leaders::QuorumLeaders;
use crate::uncommitted::TOPIC;

/// How long the cluster is given to have all replicas in sync, before and after.
const RECOVERY: Duration = Duration::from_secs(30);
/// Longer than the sessions of brokers and an election of the quorum.
const FENCING: Duration = Duration::from_secs(15);
/// Longer than `replica.lag.time.max.ms`.
const LAGGING: Duration = Duration::from_secs(10);
/// How long the calls of a slow disk take: less than an election when they follow each other.
const SLOW_CALLS: Range<Duration> = Duration::from_millis(10)..Duration::from_millis(20);
/// No log gets this long.
const BEYOND_EVERY_LOG: i64 = 1 << 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Story {
    /// A leader that only clients can reach appends their records, until another leader is elected.
    /// It returns with records that the other replicas do not have.
    LeaderCutOff,
    /// A voter of the quorum lacks committed records. The leader fails, and the third voter
    /// restarts, so that the lagging voter requests its vote first.
    VoterBehind,
    /// A new leader of the quorum fails before its log has a record of its epoch. It comes back while
    /// the voter that elected it has heard of no leader: that one votes for it again.
    QuorumLeaderRestarts,
    /// A leader receives nothing from a follower, which has left the ISR. Then it receives one
    /// fetch, at a position that its own log does not have: the follower's log diverges.
    FollowerDiverges,
}

impl Story {
    /// The story of the seed.
    pub fn drawn() -> Story {
        match stream("story").below(4) {
            0 => Story::LeaderCutOff,
            1 => Story::VoterBehind,
            2 => Story::QuorumLeaderRestarts,
            _ => Story::FollowerDiverges,
        }
    }

    /// Whether it needs records that are written outside transactions.
    pub fn needs_plain_topic(self) -> bool {
        self == Story::LeaderCutOff
    }

    /// Plays it. Returns whether the cluster was in a state for that.
    pub fn play(self, cluster: &mut Cluster, leaders: &mut QuorumLeaders) -> Result<bool, String> {
        let mut random = stream("events of the story");
        if !wait(RECOVERY, || cluster.is_in_sync()) {
            return Ok(false);
        }
        tracing::info!(story = ?self, "begins");
        let was_played = match self {
            Story::LeaderCutOff => Ok(cut_leader_off(cluster)),
            Story::VoterBehind => Ok(leave_voter_behind(cluster, &mut random)),
            Story::QuorumLeaderRestarts => Ok(restart_leader(cluster, leaders)),
            Story::FollowerDiverges => claim_position(cluster, &mut random),
        };
        Network::of_this_simulation().heal();
        wait(RECOVERY, || cluster.is_in_sync());
        leaders.observe(cluster);
        tracing::info!(story = ?self, ?was_played, "is over");
        leaders.finding().map_or(was_played, Err)
    }
}

fn cut_leader_off(cluster: &Cluster) -> bool {
    let leader = || {
        let image = cluster.newest_metadata()?;
        Some(image.topics.partition(TOPIC, PartitionIndex(0))?.leader)
    };
    let Some((before, index)) = leader().and_then(|id| Some((id, cluster.index_of(id)?))) else {
        return false;
    };
    cut_off(cluster, index);
    let is_replaced = wait(FENCING, || {
        leader().is_some_and(|now| now != before && now != BrokerId::NONE)
    });
    // The new leader writes records, too.
    sleep(Duration::from_millis(500));
    is_replaced
}

fn leave_voter_behind(cluster: &mut Cluster, random: &mut Random) -> bool {
    let Some((leader, mut others)) = voters(cluster) else {
        return false;
    };
    let behind = others.swap_remove(random.index(others.len()));
    let other = others[0];
    cut_off(cluster, behind);
    // Longer than `controller.quorum.fetch.timeout.ms`: it has begun to ask for votes.
    sleep(millis(random, 2_100..2_500));
    kill(cluster, leader);
    kill(cluster, other);
    Network::of_this_simulation().heal();
    cluster.nodes[other].start();
    sleep(millis(random, 3_000..4_000));
    cluster.nodes[leader].start();
    true
}

/// A voter accepts the vote of a former process of its candidate again, so that the candidate would
/// lead its epoch again if it tried. It can only try while its log has no record of the epoch: the
/// other voters refuse a candidate whose log already has its epoch.
fn restart_leader(cluster: &mut Cluster, leaders: &mut QuorumLeaders) -> bool {
    let Some((former, others)) = voters(cluster) else {
        return false;
    };
    let Some(epoch) = cluster.nodes[former].led_epoch() else {
        return false;
    };
    kill(cluster, former);
    // The next leader takes some time from the note that it leads to the first record of its epoch.
    let slow = Faults {
        delay: Some(SLOW_CALLS),
        ..Faults::default()
    };
    for index in &others {
        cluster.nodes[*index].disk.set_faults("/data", slow.clone());
    }
    let mut elected = None;
    wait_in_steps(SLOW_CALLS.start / 2, FENCING, || {
        let noted = |index: &usize| {
            let epoch_led = cluster.nodes[*index].noted_leadership()?;
            (epoch_led > epoch).then_some((*index, epoch_led))
        };
        elected = others.iter().find_map(noted);
        elected.is_some()
    });
    if let Some((index, epoch_led)) = elected {
        leaders.on_leader(epoch_led, cluster.nodes[index].process());
        kill(cluster, index);
    }
    for index in &others {
        cluster.nodes[*index]
            .disk
            .set_faults("/data", Faults::default());
    }
    if let Some((index, epoch_led)) = elected {
        cluster.nodes[index].start();
        wait(Duration::from_secs(5), || {
            leaders.observe(cluster);
            let mut epochs = cluster.nodes.iter().filter_map(Node::quorum_epoch);
            epochs.any(|now| now > epoch_led)
        });
    }
    cluster.nodes[former].start();
    elected.is_some()
}

/// A follower that its leader does not hear.
#[derive(Clone)]
struct Follower {
    topic: &'static str,
    topic_id: TopicId,
    partition: PartitionIndex,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    id: BrokerId,
    broker_epoch: BrokerEpoch,
}

impl Follower {
    /// The followers of all partitions. Neither they nor their leaders are the active controller, from
    /// which both must hear.
    fn of_cluster(cluster: &Cluster) -> Vec<Follower> {
        let Some(image) = cluster.newest_metadata() else {
            return Vec::new();
        };
        let is_controller = |id| {
            let node = cluster.index_of(id).map(|index| &cluster.nodes[index]);
            node.is_none_or(|node| node.led_epoch().is_some())
        };
        let mut followers = Vec::new();
        for topic in TOPICS {
            let Some(topic_image) = image.topics.by_name(topic) else {
                continue;
            };
            for (index, partition) in topic_image.partitions() {
                let leader = partition.leader;
                if is_controller(leader) {
                    continue;
                }
                let others = partition.isr.iter().filter(|id| **id != leader);
                let others = others.filter(|id| !is_controller(**id));
                followers.extend(others.map(|id| Follower {
                    topic,
                    topic_id: topic_image.id,
                    partition: index,
                    leader,
                    leader_epoch: partition.leader_epoch,
                    id: *id,
                    broker_epoch: image.cluster.broker_epoch(*id),
                }));
            }
        }
        followers
    }

    /// Whether it is in the ISR, while this leader leads.
    fn is_in_sync(&self, cluster: &Cluster) -> Option<bool> {
        let image = cluster.newest_metadata()?;
        let partition = image.topics.partition(self.topic, self.partition)?;
        (partition.leader_epoch == self.leader_epoch).then(|| partition.isr.contains(&self.id))
    }

    fn fetch(&self) -> FetchRequest {
        FetchRequest {
            replica_state: ReplicaState {
                replica_id: self.id.value(),
                replica_epoch: self.broker_epoch.value(),
                ..Default::default()
            },
            topics: vec![FetchTopic {
                topic_id: self.topic_id,
                partitions: vec![FetchPartition {
                    partition: self.partition.value(),
                    current_leader_epoch: self.leader_epoch.value(),
                    fetch_offset: BEYOND_EVERY_LOG,
                    last_fetched_epoch: self.leader_epoch.value(),
                    log_start_offset: 0,
                    partition_max_bytes: 1 << 16,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }
}

fn claim_position(cluster: &Cluster, random: &mut Random) -> Result<bool, String> {
    let mut followers = Follower::of_cluster(cluster);
    if followers.is_empty() {
        return Ok(false);
    }
    let follower = followers.swap_remove(random.index(followers.len()));
    let name = |id| {
        cluster
            .index_of(id)
            .map(|at| cluster.nodes[at].name.clone())
    };
    let (Some(own), Some(leader)) = (name(follower.id), name(follower.leader)) else {
        return Ok(false);
    };
    tracing::info!(follower = own, leader, "the link is cut one way");
    Network::of_this_simulation().cut(&own, &leader);
    if !wait(LAGGING, || follower.is_in_sync(cluster) == Some(false)) {
        return Ok(false);
    }
    let (claim, address) = (follower.clone(), format!("{leader}:9092"));
    let sending = on(&Host::new("diverging-follower"), move || async move {
        let client = unconnected(&address);
        // Several, because the leader may be waiting for an answer about its ISR.
        for _ in 0..3 {
            let answered = async {
                let connection = client.connection(&address).await?;
                connection.send(&claim.fetch()).await
            };
            match timeout(Duration::from_secs(1), answered).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!("a fetch in the name of a follower: {error:#}"),
                Err(_) => tracing::debug!("a fetch in the name of a follower: no answer"),
            }
            ottla_sync::time::sleep(Duration::from_millis(200)).await;
        }
    });
    sending.join().expect("it ends");
    let joins = || follower.is_in_sync(cluster) == Some(true);
    match wait(Duration::from_secs(1), joins) {
        false => Ok(true),
        true => Err(format!(
            "in-sync replicas: {leader} takes {own} into the ISR of {}-{}, from which it has heard only of a position that is \
             not in its log",
            follower.topic, follower.partition
        )),
    }
}

/// The leader of the quorum, and the other voters.
fn voters(cluster: &Cluster) -> Option<(usize, Vec<usize>)> {
    let nodes = 0..cluster.nodes.len();
    let voters = nodes.filter(|index| cluster.nodes[*index].holds_metadata_vote());
    let (leaders, others): (Vec<usize>, Vec<usize>) =
        voters.partition(|index| cluster.nodes[*index].led_epoch().is_some());
    match leaders[..] {
        [leader] => Some((leader, others)),
        _ => None,
    }
}

/// Cuts a node off from the other nodes, but not from the clients.
fn cut_off(cluster: &Cluster, index: usize) {
    let (name, network) = (&cluster.nodes[index].name, Network::of_this_simulation());
    tracing::info!(node = name, "is cut off from the nodes");
    for other in cluster.nodes.iter().filter(|node| node.name != *name) {
        network.cut(name, &other.name);
        network.cut(&other.name, name);
    }
}

fn kill(cluster: &mut Cluster, index: usize) {
    tracing::info!(node = cluster.nodes[index].name, "is killed");
    cluster.nodes[index].kill();
}

fn millis(random: &mut Random, range: Range<u64>) -> Duration {
    Duration::from_millis(range.start + random.below(range.end - range.start))
}

/// Waits until `holds` returns true, at most for the given time. Returns whether it did.
fn wait(time: Duration, holds: impl FnMut() -> bool) -> bool {
    wait_in_steps(Duration::from_millis(50), time, holds)
}

/// As [`wait`], looking each time that `step` has passed.
fn wait_in_steps(step: Duration, time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = now() + time;
    loop {
        if holds() {
            return true;
        }
        if now() > deadline {
            return false;
        }
        sleep(step);
    }
}
