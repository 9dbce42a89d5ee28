//! Checks of a running cluster: brokers that are down, certificates that expire, partitions without
//! a leader or with missing replicas, internal topics that cannot be created, uneven load, disks
//! that fill up, and a lagging quorum.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, join3};
use ottla_client::admin::{
    ConfigResourceType, EndpointType, PartitionDescription, QuorumDescription, TopicDescription,
};
use ottla_client::{Admin, ClientError};
use ottla_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use ottla_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use ottla_protocol::messages::describe_quorum_response::ReplicaState;
use ottla_types::{ErrorCode, Uuid};

use super::check::{Check, Section, bytes_text};
use crate::counted::counted;
use crate::tools;

/// Maximum number of partitions that are listed; all are counted.
const NAMED: usize = 5;
/// The reported share of partitions not led by their preferred leader, as
/// `leader.imbalance.per.broker.percentage`.
const MUCH_IMBALANCE: f64 = 0.1;
/// Reported skew: a broker has this many times the replicas of another, and at least this many
/// more.
const MUCH_SKEW: f64 = 1.5;
const MANY_MORE: usize = 10;
/// Used fraction of a disk.
const NEAR_FULL: f64 = 0.85;
const FULL: f64 = 0.95;
/// A certificate with fewer days left is reported.
const FEW_DAYS: i64 = 30;
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Lag of a voter, in records of the metadata log.
const MUCH_LAG: i64 = 10_000;
/// A running voter fetches at least every half second. A voter that has not fetched for this long
/// is reported.
const SILENT_MS: i64 = 5_000;
/// A voter that fetches and has not reached the log end for this long is reported.
const BEHIND_MS: i64 = 30_000;

/// The topics that brokers create at their first use: the name, the setting of the replication
/// factor, and what needs the topic.
const INTERNAL_TOPICS: [(&str, &str, &str); 3] = [
    (
        "__consumer_offsets",
        "offsets.topic.replication.factor",
        "consumer groups",
    ),
    (
        "__transaction_state",
        "transaction.state.log.replication.factor",
        "transactions",
    ),
    (
        "__share_group_state",
        "share.coordinator.state.topic.replication.factor",
        "share groups",
    ),
];

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stands in commands for the flags with which the cluster was found.
const THIS_CLUSTER: &str = "--bootstrap-server …";

pub(super) fn look(servers: &str, command_config: Option<&str>) -> Result<Vec<Section>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    let looked = runtime.block_on(async {
        let limit = Some(PATIENCE);
        let admin = tools::connect_admin(servers, command_config, "ottla-doctor", limit).await?;
        ask(&admin).await
    });
    let mut sections = looked.map_err(|error: anyhow::Error| format!("{error:#}"))?;
    let flags = tools::cluster_flags("--bootstrap-server", servers, command_config);
    name_cluster(&mut sections, &flags);
    Ok(sections)
}

/// Writes the flags for this cluster into the commands, so that they can be copied.
fn name_cluster(sections: &mut [Section], flags: &str) {
    let checks = sections.iter_mut().flat_map(|(_, checks)| checks);
    for remedy in checks.filter_map(|check| check.remedy.as_mut()) {
        *remedy = remedy.replace(THIS_CLUSTER, flags);
    }
}

async fn ask(admin: &Admin) -> anyhow::Result<Vec<Section>> {
    let cluster = admin.describe_cluster(EndpointType::Broker, true).await?;
    let names = admin.list_topics(true).await?;
    let topics = admin.describe_topics(&names).await?;
    let running = cluster.brokers.iter().filter(|it| !it.is_fenced);
    let asked = running.map(|broker| async move {
        let id = broker.broker_id;
        let dirs = admin.describe_log_dirs(id).await;
        let certificate = match dirs.is_ok() {
            true => certificate(admin, id).await,
            false => None,
        };
        (disks(id, dirs), certificate)
    });
    // All at the same time: each that does not answer is waited for.
    let (answers, quorum, lacking) = join3(
        join_all(asked),
        admin.describe_quorum(),
        missing_topics(admin, &cluster.brokers, &topics),
    )
    .await;
    let (disks, certificates): (Vec<Vec<Check>>, Vec<Option<Check>>) = answers.into_iter().unzip();
    let quorum = match quorum {
        Ok(quorum) => quorum_checks(&quorum),
        Err(error) => vec![Check::problem(
            "metadata quorum",
            format!("does not answer: {error}"),
            "start the controllers; a majority of them must run",
        )],
    };
    let mut brokers = brokers(&cluster.brokers);
    brokers.push(skew(&cluster.brokers, &topics));
    brokers.extend(certificates.into_iter().flatten());
    let mut partitions = partitions(&topics);
    partitions.extend(lacking);
    Ok(vec![
        ("Brokers", brokers),
        ("Partitions", partitions),
        ("Disks", disks.concat()),
        ("Controllers", quorum),
    ])
}

fn disks(broker: i32, answer: Result<Vec<DescribeLogDirsResult>, ClientError>) -> Vec<Check> {
    let error = match answer {
        Ok(dirs) => return dirs.iter().map(|dir| disk(broker, dir)).collect(),
        Err(error) => error,
    };
    vec![match error.code() {
        Some(_) => Check::warning(
            format!("disks of broker {broker}"),
            format!("unknown: {error}"),
            "check the broker's log",
        ),
        // The controller notices it after broker.session.timeout.ms, if there is a controller.
        None => Check::problem(
            format!("broker {broker}"),
            format!("is registered as running, but does not answer: {error}"),
            format!("start broker {broker}; if it runs, check its log"),
        ),
    }]
}

/// The certificate that a broker presents to this client; `None` without TLS.
async fn certificate(admin: &Admin, broker: i32) -> Option<Check> {
    let connection = admin.client().node(broker).await.ok()?;
    let certificate = connection.peer_certificate()?;
    let left = certificate.seconds_left(SystemTime::now());
    Some(certificate_check(broker, &certificate.subject, left))
}

fn certificate_check(broker: i32, subject: &str, seconds_left: i64) -> Check {
    let name = format!("certificate of broker {broker}");
    let remedy = format!(
        "replace the key store file of broker {broker}; it is read again without a restart"
    );
    let Ok(left) = usize::try_from(seconds_left) else {
        return Check::problem(name, format!("{subject} has expired"), remedy);
    };
    let days = counted(left / DAY_SECONDS as usize, "day");
    let what = format!("{subject} expires in {days}");
    match seconds_left < FEW_DAYS * DAY_SECONDS {
        true => Check::warning(name, what, remedy),
        false => Check::good(name, what),
    }
}

fn brokers(brokers: &[DescribeClusterBroker]) -> Vec<Check> {
    let away: Vec<_> = brokers.iter().filter(|it| it.is_fenced).collect();
    if away.is_empty() {
        let what = match brokers.len() {
            1 => "the only one is running".to_owned(),
            count => format!("all {count} are running"),
        };
        return vec![Check::good("brokers", what)];
    }
    let check = |broker: &&DescribeClusterBroker| {
        let id = broker.broker_id;
        Check::problem(
            format!("broker {id}"),
            format!(
                "{}:{} is registered but not running",
                &*broker.host, broker.port
            ),
            format!(
                "start it; if it will not return: ottla cluster unregister --id {id} --bootstrap-server …"
            ),
        )
    };
    away.iter().map(check).collect()
}

/// The partitions that match a condition. The many partitions of internal topics would hide the users'
/// topics, so they are counted.
struct Matching {
    /// Partitions of users' topics, as `topic-0`.
    named: Vec<String>,
    /// Internal topics that have such partitions, each with their number.
    internal: Vec<(String, usize)>,
}

impl Matching {
    fn of(topics: &[TopicDescription], is_meant: impl Fn(&PartitionDescription) -> bool) -> Self {
        let (mut named, mut internal) = (Vec::new(), Vec::new());
        for topic in topics {
            let meant = topic.partitions.iter().filter(|it| is_meant(it));
            if !topic.is_internal {
                named.extend(meant.map(|it| format!("{}-{}", topic.name, it.partition)));
                continue;
            }
            match meant.count() {
                0 => {}
                count => internal.push((topic.name.clone(), count)),
            }
        }
        Matching { named, internal }
    }

    fn count(&self) -> usize {
        let internal = self.internal.iter().map(|(_, count)| count);
        self.named.len() + internal.sum::<usize>()
    }

    /// Such as `orders-0, orders-1; 25 of __consumer_offsets`.
    fn text(&self) -> String {
        let internal = self.internal.iter();
        let internal: Vec<String> = internal
            .map(|(name, count)| format!("{count} of {name}"))
            .collect();
        let parts = [some_of(&self.named), internal.join(", ")];
        let parts: Vec<String> = parts.into_iter().filter(|it| !it.is_empty()).collect();
        parts.join("; ")
    }
}

fn partitions(topics: &[TopicDescription]) -> Vec<Check> {
    let count: usize = topics.iter().map(|topic| topic.partitions.len()).sum();
    let offline = Matching::of(topics, |it| it.leader.is_none());
    let lacking = Matching::of(topics, |it| {
        it.leader.is_some() && it.isr.len() < it.replicas.len()
    });
    let moved = Matching::of(topics, |it| {
        it.leader.is_some() && it.leader != it.replicas.first().copied()
    });
    let mut checks = Vec::new();
    if offline.count() > 0 {
        checks.push(Check::problem(
            "without a leader",
            offline.text(),
            "start the brokers that have their replicas",
        ));
    }
    if lacking.count() > 0 {
        checks.push(Check::problem(
            "under-replicated",
            lacking.text(),
            "start the brokers that are down; of those that run, check the network and the disks",
        ));
    }
    if checks.is_empty() {
        checks.push(Check::good(
            "replicas",
            format!("all of {count} partitions are in sync"),
        ));
    }
    if count > 0 && moved.count() as f64 / count as f64 > MUCH_IMBALANCE {
        checks.push(Check::warning(
            "led by another than the preferred replica",
            moved.text(),
            "ottla leader-election --election-type preferred --all-topic-partitions --bootstrap-server …",
        ));
    }
    checks
}

/// Internal topics that cannot be created, according to the settings of one broker. Nothing if it
/// does not return them.
async fn missing_topics(
    admin: &Admin,
    brokers: &[DescribeClusterBroker],
    topics: &[TopicDescription],
) -> Vec<Check> {
    let Some(asked) = brokers.iter().find(|it| !it.is_fenced) else {
        return Vec::new();
    };
    let id = asked.broker_id.to_string();
    let settings = admin.describe_configs(ConfigResourceType::Broker, &id, false);
    match settings.await {
        Ok(settings) => not_creatable(&settings, brokers.len(), topics),
        Err(_) => Vec::new(),
    }
}

/// Groups and transactions hang, and clients get no reason, while such a topic cannot be created.
fn not_creatable(
    settings: &[DescribeConfigsResourceResult],
    brokers: usize,
    topics: &[TopicDescription],
) -> Vec<Check> {
    let mut checks = Vec::new();
    for (topic, setting, users) in INTERNAL_TOPICS {
        let found = settings.iter().find(|it| &*it.name == setting);
        let factor = found.and_then(|it| it.value.as_deref()?.parse::<usize>().ok());
        let exists = topics.iter().any(|it| it.name == topic);
        if let Some(factor) = factor
            && factor > brokers
            && !exists
        {
            let cluster = counted(brokers, "broker");
            checks.push(Check::warning(
                format!("topic {topic}"),
                format!(
                    "cannot be created, so {users} do not work: {setting}={factor}, and the cluster has {cluster}"
                ),
                format!(
                    "{setting}={brokers} in server.properties of each broker, and restart it; or start more brokers"
                ),
            ));
        }
    }
    checks
}

/// Checks whether one broker has far more replicas than another.
fn skew(brokers: &[DescribeClusterBroker], topics: &[TopicDescription]) -> Check {
    let mut replicas: BTreeMap<i32, usize> =
        brokers.iter().map(|broker| (broker.broker_id, 0)).collect();
    for partition in topics.iter().flat_map(|topic| &topic.partitions) {
        for replica in &partition.replicas {
            *replicas.entry(*replica).or_default() += 1;
        }
    }
    let most = replicas.iter().max_by_key(|(_, count)| **count);
    let least = replicas.iter().min_by_key(|(_, count)| **count);
    let (Some((most_id, most)), Some((least_id, least))) = (most, least) else {
        return Check::good("spread of replicas", "there is no broker");
    };
    let what = match replicas.len() {
        1 => format!("{most}, all on broker {most_id}"),
        _ => format!("{least} on broker {least_id}, {most} on broker {most_id}"),
    };
    let is_skewed = most - least > MANY_MORE && *most as f64 > MUCH_SKEW * *least as f64;
    match is_skewed {
        true => Check::warning(
            "spread of replicas",
            what,
            "ottla rebalance plan --bootstrap-server …",
        ),
        false => Check::good("spread of replicas", what),
    }
}

fn disk(broker: i32, dir: &DescribeLogDirsResult) -> Check {
    let subject = format!("broker {broker}, {}", &*dir.log_dir);
    if dir.error_code != 0 {
        let code = ErrorCode::from_code(dir.error_code);
        return Check::problem(
            subject,
            format!("is offline: {}", code.message()),
            "replace the disk, and start the broker again",
        );
    }
    let (Ok(total), Ok(usable)) = (
        u64::try_from(dir.total_bytes),
        u64::try_from(dir.usable_bytes),
    ) else {
        return Check::good(subject, "the broker does not report its size");
    };
    let used = match total {
        0 => 0.0,
        _ => 1.0 - usable as f64 / total as f64,
    };
    let what = format!("{:.0} % used, {} free", used * 100.0, bytes_text(usable));
    let remedy = "lower retention of large topics, or move replicas: ottla rebalance plan --bootstrap-server …";
    if used > FULL {
        Check::problem(subject, what, remedy)
    } else if used > NEAR_FULL {
        Check::warning(subject, what, remedy)
    } else {
        Check::good(subject, what)
    }
}

fn quorum_checks(quorum: &QuorumDescription) -> Vec<Check> {
    let state = &quorum.state;
    let voters = &state.current_voters;
    let leader = voters.iter().find(|it| it.replica_id == state.leader_id);
    let Some(leader) = leader else {
        return vec![Check::problem(
            "metadata quorum",
            "has no leader",
            "start the controllers; a majority of them must run",
        )];
    };
    let mut checks: Vec<Check> = voters
        .iter()
        .filter(|voter| voter.replica_id != leader.replica_id)
        .filter_map(|voter| voter_check(leader, voter))
        .collect();
    if checks.is_empty() {
        let what = match voters.len() {
            1 => format!("{} leads, the only voter", leader.replica_id),
            count => format!("{} leads {count} voters, all caught up", leader.replica_id),
        };
        checks.push(Check::good("metadata quorum", what));
    }
    if voters.len().is_multiple_of(2) {
        checks.push(Check::warning(
            "voters",
            format!(
                "{} tolerate no more failures than {}",
                counted(voters.len(), "voter"),
                voters.len() - 1
            ),
            format!(
                "start one more controller and make it a voter with ottla metadata-quorum add-controller, or {}",
                voters
                    .iter()
                    .rfind(|voter| voter.replica_id != leader.replica_id)
                    .map_or("remove one".to_owned(), removal)
            ),
        ));
    }
    checks
}

/// Checks a voter that is not the leader. Its timestamps are compared with the leader's timestamps,
/// because both come from the leader's clock. Leaders before KIP-836 do not report them; they are
/// then -1.
fn voter_check(leader: &ReplicaState, voter: &ReplicaState) -> Option<Check> {
    let subject = format!("controller {}", voter.replica_id);
    let since = |now: i64, then: i64| (now >= 0 && then >= 0).then_some(now - then);
    let silent_ms = since(leader.last_fetch_timestamp, voter.last_fetch_timestamp);
    let behind_ms = since(
        leader.last_caught_up_timestamp,
        voter.last_caught_up_timestamp,
    );
    let start = format!(
        "start it, or check its log and its connection to the leader; if it will not return, {}",
        removal(voter)
    );
    if voter.log_end_offset < 0 {
        let what = format!("has not fetched since {} leads", leader.replica_id);
        return Some(Check::problem(subject, what, start));
    }
    if let Some(ms) = silent_ms.filter(|ms| *ms > SILENT_MS) {
        let what = format!("has not fetched for {} s", ms / 1000);
        return Some(Check::problem(subject, what, start));
    }
    let lag = leader.log_end_offset - voter.log_end_offset;
    let is_behind = lag > 0 && behind_ms.is_some_and(|ms| ms > BEHIND_MS);
    (is_behind || lag > MUCH_LAG).then(|| {
        Check::problem(
            subject,
            format!("lags {lag} records behind"),
            "ottla metadata-quorum --bootstrap-server … describe --replication shows its progress; if it does not catch up, check its disk",
        )
    })
}

/// How a voter is removed. Voters of a quorum that cannot change have no directory.
fn removal(voter: &ReplicaState) -> String {
    let (id, directory) = (voter.replica_id, voter.replica_directory_id);
    match directory == Uuid::default() {
        true => format!("take {id} out of controller.quorum.voters of all nodes, and restart them"),
        false => format!(
            "ottla metadata-quorum --bootstrap-server … remove-controller --controller-id {id} \
             --controller-directory-id {directory}"
        ),
    }
}

fn some_of(names: &[String]) -> String {
    match names.len().checked_sub(NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::describe_quorum_response::PartitionData;

    use super::super::check::Level;
    use super::*;

    fn broker(id: i32, is_fenced: bool) -> DescribeClusterBroker {
        DescribeClusterBroker {
            broker_id: id,
            host: "h".into(),
            port: 9092,
            is_fenced,
            ..Default::default()
        }
    }

    /// A topic whose partitions have these leaders, replicas and ISRs.
    fn topic(partitions: &[(Option<i32>, &[i32], &[i32])]) -> TopicDescription {
        let partition = |(index, (leader, replicas, isr)): (usize, &(_, &[i32], &[i32]))| {
            PartitionDescription {
                partition: index as i32,
                leader: *leader,
                replicas: replicas.to_vec(),
                isr: isr.to_vec(),
                eligible_leader_replicas: None,
                last_known_elr: None,
            }
        };
        TopicDescription {
            name: "t".into(),
            topic_id: Default::default(),
            is_internal: false,
            partitions: partitions.iter().enumerate().map(partition).collect(),
        }
    }

    #[test]
    fn a_broker_that_does_not_answer_is_a_problem() {
        let refused = ClientError::Connect {
            address: "h:9092".to_owned(),
            reason: "Connection refused".to_owned(),
        };
        let [check] = &disks(2, Err(refused))[..] else {
            panic!("one check");
        };
        assert_eq!(check.level, Level::Problem);
        assert!(check.what.contains("does not answer"), "{}", check.what);
        let code = ErrorCode::ClusterAuthorizationFailed.code();
        let denied = ClientError::broker("broker 2", code, None::<&str>);
        assert_eq!(disks(2, Err(denied))[0].level, Level::Warning);
    }

    #[test]
    fn partitions_that_lack_something_are_named() {
        let sound = topic(&[(Some(1), &[1, 2], &[1, 2])]);
        assert_eq!(partitions(&[sound])[0].level, Level::Good);
        let sick = topic(&[
            (None, &[1, 2], &[1]),
            (Some(1), &[1, 2], &[1]),
            (Some(2), &[1, 2], &[1, 2]),
        ]);
        let found = partitions(&[sick]);
        let texts: Vec<String> = found
            .iter()
            .map(|it| format!("{}: {}", it.subject, it.what))
            .collect();
        assert_eq!(
            texts,
            [
                "without a leader: t-0",
                "under-replicated: t-1",
                "led by another than the preferred replica: t-2"
            ]
        );
    }

    #[test]
    fn partitions_of_internal_topics_are_counted_after_those_of_users() {
        let lacking: Vec<_> = (0..7).map(|_| (Some(1), &[1, 2][..], &[1][..])).collect();
        let mut offsets = topic(&lacking);
        offsets.name = "__consumer_offsets".into();
        offsets.is_internal = true;
        let found = partitions(&[offsets.clone(), topic(&lacking)]);
        assert_eq!(
            found[0].what,
            "t-0, t-1, t-2, t-3, t-4 and 2 more; 7 of __consumer_offsets"
        );
        let sound = topic(&[(Some(1), &[1, 2], &[1, 2])]);
        let found = partitions(&[offsets, sound]);
        assert_eq!(found[0].level, Level::Problem);
        assert_eq!(found[0].what, "7 of __consumer_offsets");
    }

    #[test]
    fn an_internal_topic_that_cannot_be_created_is_reported() {
        let settings = INTERNAL_TOPICS.map(|(_, setting, _)| DescribeConfigsResourceResult {
            name: setting.into(),
            value: Some("3".into()),
            ..Default::default()
        });
        let found = not_creatable(&settings, 1, &[]);
        let subjects: Vec<&str> = found.iter().map(|it| it.subject.as_str()).collect();
        assert_eq!(
            subjects,
            [
                "topic __consumer_offsets",
                "topic __transaction_state",
                "topic __share_group_state"
            ]
        );
        assert_eq!(found[0].level, Level::Warning);
        assert_eq!(
            found[0].what,
            "cannot be created, so consumer groups do not work: offsets.topic.replication.factor=3, and the \
             cluster has 1 broker"
        );
        // Enough brokers, a topic that exists, a broker without the setting.
        assert_eq!(not_creatable(&settings, 3, &[]), []);
        let mut offsets = topic(&[(Some(1), &[1], &[1])]);
        offsets.name = "__consumer_offsets".into();
        assert_eq!(not_creatable(&settings[..1], 1, &[offsets]), []);
        assert_eq!(not_creatable(&[], 1, &[]), []);
    }

    #[test]
    fn missing_and_overloaded_brokers_are_reported() {
        assert_eq!(brokers(&[broker(1, false)])[0].level, Level::Good);
        assert_eq!(
            brokers(&[broker(1, false), broker(2, true)])[0].subject,
            "broker 2"
        );
        let all_on_one: Vec<_> = (0..20).map(|_| (Some(1), &[1][..], &[1][..])).collect();
        let both = [broker(1, false), broker(2, false)];
        assert_eq!(skew(&both, &[topic(&all_on_one)]).level, Level::Warning);
        assert_eq!(skew(&both, &[topic(&all_on_one[..5])]).level, Level::Good);
    }

    /// The findings about a quorum that 1 leads at time 100,000, with a log of 500 records. The
    /// others: ID, log end offset, last fetch, last caught up.
    fn findings(others: &[(i32, i64, i64, i64)]) -> Vec<String> {
        let voter = |(replica_id, log_end_offset, fetched, caught_up): (_, _, _, _)| ReplicaState {
            replica_id,
            log_end_offset,
            last_fetch_timestamp: fetched,
            last_caught_up_timestamp: caught_up,
            ..Default::default()
        };
        let leader = (1, 500, 100_000, 100_000);
        let voters = std::iter::once(leader).chain(others.iter().copied());
        let quorum = QuorumDescription {
            state: PartitionData {
                leader_id: 1,
                current_voters: voters.map(voter).collect(),
                ..Default::default()
            },
            nodes: Vec::new(),
        };
        let checks = quorum_checks(&quorum).into_iter();
        let texts = checks.map(|it| format!("{:?}, {}: {}", it.level, it.subject, it.what));
        texts.collect()
    }

    #[test]
    fn dead_and_lagging_voters_are_reported() {
        let well = (2, 499, 99_600, 99_600);
        assert_eq!(
            findings(&[well, (3, 500, 95_000, 95_000)]),
            ["Good, metadata quorum: 1 leads 3 voters, all caught up"]
        );
        for (voter, expected) in [
            ((3, 470, 80_000, 80_000), "has not fetched for 20 s"),
            ((3, -1, -1, -1), "has not fetched since 1 leads"),
            ((3, 200, 99_900, 60_000), "lags 300 records behind"),
        ] {
            let expected = format!("Problem, controller 3: {expected}");
            assert_eq!(findings(&[well, voter]), [expected]);
        }
        // A leader that reports no times.
        let found = findings(&[(2, 499, -1, -1), (3, 499, -1, -1)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("Good"), "{found:?}");
    }

    #[test]
    fn a_certificate_is_reported_before_it_expires() {
        let check = |seconds| certificate_check(2, "CN=b", seconds);
        assert_eq!(check(400 * DAY_SECONDS).level, Level::Good);
        let soon = check(DAY_SECONDS + 5);
        assert_eq!(soon.level, Level::Warning);
        assert_eq!(soon.subject, "certificate of broker 2");
        assert_eq!(soon.what, "CN=b expires in 1 day");
        assert_eq!(check(-1).level, Level::Problem);
    }

    #[test]
    fn commands_can_be_copied() {
        let alone = [broker(1, false), broker(2, true)];
        let voter = |directory| ReplicaState {
            replica_id: 3,
            replica_directory_id: directory,
            ..Default::default()
        };
        let mut sections = vec![("Brokers", brokers(&alone))];
        name_cluster(&mut sections, "--bootstrap-server b:1 --command-config c");
        let remedy = sections[0].1[0].remedy.clone().unwrap_or_default();
        let command = "ottla cluster unregister --id 2 --bootstrap-server b:1 --command-config c";
        assert!(remedy.ends_with(command), "{remedy}");
        let directory = Uuid::from_u128(7);
        let removed = removal(&voter(directory));
        let flags = format!("--controller-id 3 --controller-directory-id {directory}");
        assert!(removed.ends_with(&flags), "{removed}");
        let fixed = removal(&voter(Uuid::default()));
        assert!(fixed.contains("controller.quorum.voters"), "{fixed}");
        assert_eq!(
            findings(&[]),
            ["Good, metadata quorum: 1 leads, the only voter"]
        );
    }

    #[test]
    fn a_disk_is_checked_by_its_usage() {
        let dir = |error_code, usable_bytes| DescribeLogDirsResult {
            error_code,
            log_dir: "/d".into(),
            total_bytes: 100,
            usable_bytes,
            ..Default::default()
        };
        assert_eq!(disk(1, &dir(0, 50)).level, Level::Good);
        assert_eq!(disk(1, &dir(0, 10)).level, Level::Warning);
        assert_eq!(disk(1, &dir(0, 1)).level, Level::Problem);
        let offline = disk(1, &dir(ErrorCode::KafkaStorageError.code(), 50));
        assert!(offline.what.starts_with("is offline"), "{offline:?}");
    }
}
