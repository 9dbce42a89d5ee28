//! Reports to the user of a console consumer that its group has to wait: one line when the group
//! coordinator, or the state of a share group, has been unavailable for a while, and one line when it
//! is available again. These clients retry without a limit.
//!
//! Unreachable brokers are reported by [`super::connection_watch`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ottla_client::{BrokerNode, Client, ClientError, CoordinatorKind};
use ottla_coordinator::partition_for;
use ottla_coordinator::persister::SharePartitionKey;
use ottla_protocol::messages::DescribeGroupsRequest;
use ottla_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::metadata_response::MetadataResponse;
use ottla_types::ErrorCode;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::connection_watch::length_of;
use crate::counted::counted;

const OFFSETS_TOPIC: &str = "__consumer_offsets";
const SHARE_STATE_TOPIC: &str = "__share_group_state";
/// The pause between checks while the group waits.
const PAUSE: Duration = Duration::from_secs(1);
/// The same while all is available. Each check is a request, for a share group two.
const LONG_PAUSE: Duration = Duration::from_secs(5);
/// How long a broker has to answer a check.
const PROBE: Duration = Duration::from_secs(2);
/// Reported only after this time: internal topics are created at their first use, and leaders are
/// elected, in less.
const NOTEWORTHY: Duration = Duration::from_secs(5);

/// Watches the coordinator of a group until it is dropped.
pub(super) struct CoordinatorWatch {
    task: JoinHandle<()>,
}

impl Drop for CoordinatorWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `who` is the client's name in Kafka's logs. `shared` is the topic of a share group, whose state is
/// watched too.
pub(super) fn watch(
    client: &Client,
    who: &str,
    group: &str,
    shared: Option<&str>,
) -> CoordinatorWatch {
    let (client, group, shared) = (client.clone(), group.to_owned(), shared.map(str::to_owned));
    let mut report = Report::new(who);
    let task = tokio::spawn(async move {
        loop {
            let checked = timeout(PROBE, check(&client, &group, shared.as_deref())).await;
            let state = match checked {
                Ok(Ok(state)) => state,
                _ => State::Unknown,
            };
            let pause = match &state {
                State::Available => LONG_PAUSE,
                _ => PAUSE,
            };
            if let Some(line) = report.observe(Instant::now(), state) {
                eprintln!("{line}");
            }
            sleep(pause).await;
        }
    });
    CoordinatorWatch { task }
}

/// What a check has found.
enum State {
    Available,
    /// No broker has answered.
    Unknown,
    Unavailable {
        what: String,
        reason: String,
    },
}

async fn check(client: &Client, group: &str, shared: Option<&str>) -> Result<State, ClientError> {
    let is_waited_for = |error: &ClientError| error.code().is_some() && error.is_retriable();
    let unavailable = |reason| State::Unavailable {
        what: format!("The coordinator of group {group}"),
        reason,
    };
    let coordinator = match client.coordinator(CoordinatorKind::Group, group).await {
        Ok(coordinator) => coordinator,
        Err(error) if is_waited_for(&error) => {
            let described = describe(client, &[OFFSETS_TOPIC]).await?;
            let trouble = trouble_of(&described, OFFSETS_TOPIC, &[group.to_owned()]);
            return Ok(unavailable(
                trouble.unwrap_or_else(|| error.broker_message()),
            ));
        }
        // The client itself reports an error that ends it.
        Err(error) => return Err(error),
    };
    // The next check looks it up again: a member of the group does so only at its next heartbeat.
    let forget = || client.forget_coordinator(CoordinatorKind::Group, group);
    let asked = answer_of(client, &coordinator, group).await;
    match asked.inspect_err(|_| forget())? {
        ErrorCode::CoordinatorLoadInProgress => {
            return Ok(unavailable(format!(
                "broker {} is still loading its partition of topic {OFFSETS_TOPIC}",
                coordinator.id
            )));
        }
        code if code.is_retriable() => {
            forget();
            return Ok(unavailable(code.message().to_owned()));
        }
        // The group may be unknown, or be described with another request.
        _ => {}
    }
    let Some(topic) = shared else {
        return Ok(State::Available);
    };
    let described = describe(client, &[topic, SHARE_STATE_TOPIC]).await?;
    Ok(state_of_share_group(&described, group, topic))
}

/// The error code with which the coordinator of a group answers. All members of a group may describe it, and
/// the request changes nothing.
async fn answer_of(
    client: &Client,
    coordinator: &BrokerNode,
    group: &str,
) -> Result<ErrorCode, ClientError> {
    let request = DescribeGroupsRequest {
        groups: vec![group.to_owned().into()],
        ..Default::default()
    };
    let connection = client.connection(&coordinator.address()).await?;
    let response = connection.send(&request).await?;
    let code = response.groups.first().map_or(0, |group| group.error_code);
    Ok(ErrorCode::from_code(code))
}

/// The state is that of the partitions that can be read. The brokers create its topic when a share group
/// reads its first partition.
fn state_of_share_group(described: &MetadataResponse, group: &str, topic: &str) -> State {
    let mut topics = described.topics.iter();
    let read = topics.find(|it| it.name.as_deref() == Some(topic));
    let keys = read.into_iter().flat_map(|read| {
        let partitions = read.partitions.iter().filter(|it| it.leader_id >= 0);
        partitions.map(move |partition| SharePartitionKey {
            group_id: group.to_owned().into(),
            topic_id: read.topic_id,
            partition: partition.partition_index,
        })
    });
    let keys: Vec<String> = keys.map(|key| key.coordinator_key()).collect();
    match trouble_of(described, SHARE_STATE_TOPIC, &keys) {
        Some(reason) => State::Unavailable {
            what: format!("The state of share group {group}"),
            reason,
        },
        None => State::Available,
    }
}

/// Describes topics. Not with [`Client::refresh_metadata`], after which the metadata of all topics
/// counts as new.
async fn describe(client: &Client, topics: &[&str]) -> Result<MetadataResponse, ClientError> {
    let topic = |name: &&str| MetadataRequestTopic {
        name: Some((*name).to_owned().into()),
        ..Default::default()
    };
    let request = MetadataRequest {
        topics: Some(topics.iter().map(topic).collect()),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    client.any_node().await?.send(&request).await
}

/// Why an internal topic cannot be used for these keys, each of which is in one of its partitions;
/// `None` if no reason is known.
fn trouble_of(described: &MetadataResponse, topic: &str, keys: &[String]) -> Option<String> {
    if keys.is_empty() {
        return None;
    }
    let mut topics = described.topics.iter();
    let found = topics.find(|it| it.name.as_deref() == Some(topic))?;
    if ErrorCode::from_code(found.error_code) == ErrorCode::UnknownTopicOrPartition {
        return Some(format!(
            "topic {topic} does not exist, and the brokers have not created it; `ottla doctor` finds the reason"
        ));
    }
    let count = i32::try_from(found.partitions.len())
        .ok()
        .filter(|count| *count > 0)?;
    let used: BTreeSet<i32> = keys.iter().map(|key| partition_for(key, count)).collect();
    let leaderless = found.partitions.iter().filter(|it| it.leader_id < 0);
    let leaderless: Vec<i32> = leaderless
        .map(|it| it.partition_index)
        .filter(|index| used.contains(index))
        .collect();
    match leaderless[..] {
        [] => None,
        [index] => Some(format!("partition {index} of topic {topic} has no leader")),
        _ => Some(format!(
            "{} of topic {topic} have no leader",
            counted(leaderless.len(), "partition")
        )),
    }
}

/// What is unavailable, since when, and whether that was reported.
struct Report {
    who: String,
    unavailable: Option<Unavailable>,
}

struct Unavailable {
    what: String,
    since: Instant,
    is_reported: bool,
}

impl Report {
    fn new(who: &str) -> Report {
        Report {
            who: who.to_owned(),
            unavailable: None,
        }
    }

    /// The line to print now, if any.
    fn observe(&mut self, now: Instant, state: State) -> Option<String> {
        let (what, reason) = match state {
            State::Available => return self.end(now),
            State::Unavailable { what, reason } => (what, reason),
            // Whether it is available will be known later.
            State::Unknown => {
                let unavailable = self.unavailable.take();
                self.unavailable = unavailable.filter(|it| it.is_reported);
                return None;
            }
        };
        let ended = match &self.unavailable {
            Some(before) if before.what != what => self.end(now),
            _ => None,
        };
        let unavailable = self.unavailable.get_or_insert(Unavailable {
            what,
            since: now,
            is_reported: false,
        });
        if unavailable.is_reported || now - unavailable.since < NOTEWORTHY {
            return ended;
        }
        unavailable.is_reported = true;
        let (who, what) = (&self.who, &unavailable.what);
        // A broker's message is a sentence.
        let reason = reason.trim_end_matches('.');
        Some(format!(
            "WARN [{who}] {what} is not available: {reason}. Waiting for it."
        ))
    }

    /// The line to print when what was unavailable is available.
    fn end(&mut self, now: Instant) -> Option<String> {
        let before = self.unavailable.take().filter(|it| it.is_reported)?;
        let (who, what, length) = (&self.who, before.what, length_of(now - before.since));
        Some(format!("INFO [{who}] {what} is available after {length}."))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    use ottla_client::ClientConfig;
    use ottla_protocol::ApiKey;
    use ottla_protocol::messages::describe_groups_response::DescribedGroup;
    use ottla_protocol::messages::find_coordinator_response::Coordinator;
    use ottla_protocol::messages::metadata_response::{
        MetadataResponsePartition, MetadataResponseTopic,
    };
    use ottla_protocol::messages::{DescribeGroupsResponse, FindCoordinatorResponse};
    use ottla_testkit::peer::peer;
    use ottla_types::Uuid;

    use super::*;

    fn unavailable() -> State {
        State::Unavailable {
            what: "The coordinator of group g".to_owned(),
            reason: "no leader".to_owned(),
        }
    }

    #[test]
    fn a_long_wait_is_one_line_and_one_when_it_is_over() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut report = Report::new("C");
        let waiting = (0..10).map(|second| report.observe(at(second), unavailable()));
        let waiting: Vec<Option<String>> = waiting.collect();
        let line =
            "WARN [C] The coordinator of group g is not available: no leader. Waiting for it.";
        let reported: Vec<usize> = (0..10)
            .filter(|second| waiting[*second].as_deref() == Some(line))
            .collect();
        assert_eq!(reported, [5]);
        assert_eq!(waiting.iter().flatten().count(), 1, "{waiting:?}");
        assert_eq!(report.observe(at(10), State::Unknown), None);
        assert_eq!(
            report.observe(at(12), State::Available).as_deref(),
            Some("INFO [C] The coordinator of group g is available after 12 s.")
        );
        assert_eq!(report.observe(at(13), State::Available), None);
    }

    #[test]
    fn the_sentence_of_a_broker_ends_with_one_full_stop() {
        let began = Instant::now();
        let mut report = Report::new("C");
        let refused = || State::Unavailable {
            what: "The coordinator of group g".to_owned(),
            reason: ErrorCode::CoordinatorNotAvailable.message().to_owned(),
        };
        assert_eq!(report.observe(began, refused()), None);
        assert_eq!(
            report.observe(began + NOTEWORTHY, refused()).as_deref(),
            Some(
                "WARN [C] The coordinator of group g is not available: The coordinator is not available. \
                 Waiting for it."
            )
        );
    }

    #[test]
    fn the_state_of_a_share_group_is_waited_for_after_its_coordinator() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut report = Report::new("C");
        report.observe(at(0), unavailable());
        report.observe(at(5), unavailable()).expect("it is long");
        let next = || State::Unavailable {
            what: "The state of share group g".to_owned(),
            reason: "no topic".to_owned(),
        };
        let lines = [7, 12].map(|second| report.observe(at(second), next()));
        assert_eq!(
            lines.map(Option::unwrap_or_default),
            [
                "INFO [C] The coordinator of group g is available after 7 s.",
                "WARN [C] The state of share group g is not available: no topic. Waiting for it."
            ]
        );
    }

    #[test]
    fn a_short_wait_is_not_reported() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        for between in [State::Available, State::Unknown] {
            let mut report = Report::new("C");
            assert_eq!(report.observe(at(0), unavailable()), None);
            assert_eq!(report.observe(at(4), between), None);
            assert_eq!(report.observe(at(6), unavailable()), None);
            assert_eq!(report.observe(at(8), State::Available), None);
        }
    }

    /// A topic with these leaders; without any, it does not exist.
    fn topic(name: &str, leaders: &[i32]) -> MetadataResponseTopic {
        let partition = |(index, leader_id): (usize, &i32)| MetadataResponsePartition {
            partition_index: index as i32,
            leader_id: *leader_id,
            ..Default::default()
        };
        MetadataResponseTopic {
            error_code: match leaders {
                [] => ErrorCode::UnknownTopicOrPartition.code(),
                _ => 0,
            },
            name: Some(name.to_owned().into()),
            partitions: leaders.iter().enumerate().map(partition).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_state_of_a_share_group_is_missed_once_there_is_a_partition_to_read() {
        let reason = |topics: Vec<MetadataResponseTopic>| {
            let described = MetadataResponse {
                topics,
                ..Default::default()
            };
            match state_of_share_group(&described, "g", "t") {
                State::Unavailable { what, reason } => Some(format!("{what}: {reason}")),
                State::Available | State::Unknown => None,
            }
        };
        let missing = topic(SHARE_STATE_TOPIC, &[]);
        let said = reason(vec![topic("t", &[1]), missing.clone()]).expect("it is missing");
        let begin = "The state of share group g: topic __share_group_state does not exist";
        assert!(said.starts_with(begin), "{said}");
        assert_eq!(reason(vec![topic("t", &[]), missing.clone()]), None);
        // No state is read without a leader of the partition that has the records.
        assert_eq!(reason(vec![topic("t", &[-1]), missing]), None);
        let well = topic(SHARE_STATE_TOPIC, &[1, 2]);
        assert_eq!(reason(vec![topic("t", &[1]), well]), None);
    }

    #[test]
    fn only_the_partition_with_the_state_of_a_share_partition_is_missed() {
        let key = SharePartitionKey {
            group_id: "g".into(),
            topic_id: Uuid::ZERO,
            partition: 0,
        };
        let used = partition_for(&key.coordinator_key(), 3);
        for leaderless in 0..3 {
            let mut leaders = [1, 1, 1];
            leaders[leaderless] = -1;
            let described = MetadataResponse {
                topics: vec![topic("t", &[1, -1]), topic(SHARE_STATE_TOPIC, &leaders)],
                ..Default::default()
            };
            let reason = match state_of_share_group(&described, "g", "t") {
                State::Unavailable { reason, .. } => Some(reason),
                State::Available | State::Unknown => None,
            };
            let expected = format!("partition {used} of topic {SHARE_STATE_TOPIC} has no leader");
            let expected = Some(expected).filter(|_| leaderless as i32 == used);
            assert_eq!(reason, expected);
        }
        let all = MetadataResponse {
            topics: vec![topic(OFFSETS_TOPIC, &[-1; 50])],
            ..Default::default()
        };
        let keys: Vec<String> = ["group", "polygenelubricants"].map(str::to_owned).into();
        assert_eq!(
            trouble_of(&all, OFFSETS_TOPIC, &keys[..1]).as_deref(),
            Some("partition 47 of topic __consumer_offsets has no leader")
        );
        assert_eq!(
            trouble_of(&all, OFFSETS_TOPIC, &keys).as_deref(),
            Some("2 partitions of topic __consumer_offsets have no leader")
        );
    }

    const SERVED: &[(ApiKey, i16)] = &[
        (ApiKey::ApiVersions, 3),
        (ApiKey::FindCoordinator, 4),
        (ApiKey::DescribeGroups, 5),
    ];

    /// A client of a coordinator that answers DescribeGroups with this error; without one, it closes the
    /// connection. The counter is that of the lookups.
    async fn client_of(error: Option<ErrorCode>) -> (Client, Arc<AtomicUsize>) {
        let own_port = Arc::new(AtomicU16::new(0));
        let port = Arc::clone(&own_port);
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lookups);
        let answered = peer(SERVED, move |asked| {
            Some(vec![match asked.api {
                ApiKey::FindCoordinator => {
                    counted.fetch_add(1, Ordering::Relaxed);
                    asked.answer(&FindCoordinatorResponse {
                        coordinators: vec![Coordinator {
                            key: "g".into(),
                            node_id: 7,
                            host: "127.0.0.1".into(),
                            port: port.load(Ordering::Relaxed).into(),
                            ..Default::default()
                        }],
                        ..Default::default()
                    })
                }
                _ => asked.answer(&DescribeGroupsResponse {
                    groups: vec![DescribedGroup {
                        error_code: error?.code(),
                        group_id: "g".into(),
                        ..Default::default()
                    }],
                    ..Default::default()
                }),
            }])
        });
        let number = answered.await;
        own_port.store(number, Ordering::Relaxed);
        let config = ClientConfig::new(&format!("127.0.0.1:{number}")).expect("an address");
        (Client::unconnected(config), lookups)
    }

    /// What a check finds at a coordinator that answers DescribeGroups with this error.
    async fn found_at_coordinator(error: ErrorCode) -> Option<String> {
        let (client, _) = client_of(Some(error)).await;
        match check(&client, "g", None).await.expect("it answers") {
            State::Unavailable { what, reason } => Some(format!("{what}: {reason}")),
            State::Available => None,
            State::Unknown => panic!("it answers"),
        }
    }

    #[tokio::test]
    async fn a_coordinator_that_is_found_and_loads_is_waited_for() {
        assert_eq!(
            found_at_coordinator(ErrorCode::CoordinatorLoadInProgress)
                .await
                .as_deref(),
            Some(
                "The coordinator of group g: broker 7 is still loading its partition of topic __consumer_offsets"
            )
        );
        for error in [
            ErrorCode::None,
            ErrorCode::GroupIdNotFound,
            ErrorCode::GroupAuthorizationFailed,
        ] {
            assert_eq!(found_at_coordinator(error).await, None, "{error:?}");
        }
    }

    /// Otherwise a group is said to wait until its member forgets the broker, which no longer has the group.
    #[tokio::test]
    async fn a_coordinator_that_has_moved_is_looked_up_again() {
        for (error, lookups) in [
            (Some(ErrorCode::NotCoordinator), 2),
            (None, 2),
            (Some(ErrorCode::None), 1),
            (Some(ErrorCode::CoordinatorLoadInProgress), 1),
        ] {
            let (client, counted) = client_of(error).await;
            for _ in 0..2 {
                let checked = check(&client, "g", None).await;
                assert_eq!(checked.is_err(), error.is_none(), "{error:?}");
            }
            assert_eq!(counted.load(Ordering::Relaxed), lookups, "{error:?}");
        }
    }
}
