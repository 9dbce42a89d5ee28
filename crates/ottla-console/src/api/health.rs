//! The health of a cluster in one sentence, and what needs attention first. Pure.

use ottla_types::ErrorCode;
use serde::Serialize;

use crate::view::{Snapshot, Topic};

/// Items in the response.
const SHOWN: usize = 50;
/// Shares of a volume that is used.
const NEARLY_FULL: f64 = 0.85;
const FULL: f64 = 0.95;
/// The lag, in offsets, that a controller may have.
const MUCH_LAG: i64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    Critical,
    Warning,
}

#[derive(Debug, Serialize)]
pub(super) struct Attention {
    severity: Severity,
    text: String,
    link: Link,
}

#[derive(Debug, Serialize)]
struct Link {
    kind: &'static str,
    name: String,
    partition: Option<i32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Health {
    health: &'static str,
    sentence: String,
    attention: Vec<Attention>,
    attention_total: usize,
}

pub(super) fn of(snapshot: &Snapshot) -> Health {
    let mut attention = Vec::new();
    attention.extend(snapshot.topics.values().flat_map(of_partitions));
    attention.extend(of_brokers(snapshot));
    attention.extend(of_disks(snapshot));
    attention.extend(of_quorum(snapshot));
    // Stable: within a severity, partitions come before disks.
    attention.sort_by_key(|it| it.severity);
    let attention_total = attention.len();
    let health = match attention.first().map(|it| it.severity) {
        None => "ok",
        Some(Severity::Warning) => "warning",
        Some(Severity::Critical) => "critical",
    };
    let sentence = sentence(snapshot, attention_total);
    attention.truncate(SHOWN);
    Health {
        health,
        sentence,
        attention,
        attention_total,
    }
}

fn sentence(snapshot: &Snapshot, attention: usize) -> String {
    let topics = snapshot.topics.values();
    let partitions: usize = topics.clone().map(|it| it.info.partitions.len()).sum();
    let offline: usize = topics.clone().map(Topic::offline).sum();
    let refusing: usize = topics.clone().map(Topic::under_min_isr).sum();
    let lacking: usize = topics.map(Topic::under_replicated).sum();
    let of = |count: usize, what: &str| {
        let verb = if count == 1 { "is" } else { "are" };
        format!(
            "{count} of {} {verb} {what}.",
            counted(partitions, "partition")
        )
    };
    match (offline, refusing, lacking) {
        (0, 0, 0) if partitions == 0 => "The cluster has no partitions yet.".into(),
        (0, 0, 0) => {
            let all = match partitions {
                1 => "The only partition is in sync".to_owned(),
                _ => format!("All {partitions} partitions are in sync"),
            };
            match attention {
                0 => format!("{all}."),
                1 => format!("{all}; 1 other thing needs attention."),
                more => format!("{all}; {more} other things need attention."),
            }
        }
        (0, 0, lacking) => of(lacking, "under-replicated"),
        (0, refusing, _) => of(refusing, "below min.insync.replicas and refuse acks=all"),
        (offline, ..) => of(
            offline,
            "without a leader: they can be neither written nor read",
        ),
    }
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

fn of_partitions(topic: &Topic) -> Vec<Attention> {
    let least = topic
        .settings
        .as_ref()
        .and_then(|it| it.min_insync_replicas);
    let mut found = Vec::new();
    for partition in &topic.info.partitions {
        let name = format!("{}-{}", topic.info.name, partition.partition);
        let isr = partition.isr.len();
        let (severity, text) = if partition.leader < 0 {
            let replicas = &partition.replicas;
            let text = format!(
                "{name} has no leader; start the brokers {replicas:?}, which have its replicas"
            );
            (Severity::Critical, text)
        } else if least.is_some_and(|least| (isr as i64) < least) {
            let least = least.unwrap_or_default();
            let text = format!(
                "{name} has {isr} in-sync replicas and min.insync.replicas={least}: it refuses acks=all"
            );
            (Severity::Critical, text)
        } else if isr < partition.replicas.len() {
            let missing = partition
                .replicas
                .iter()
                .filter(|it| !partition.isr.contains(it));
            let missing: Vec<String> = missing.map(ToString::to_string).collect();
            let text = format!(
                "{name}: the replica on broker {} is not in sync",
                missing.join(", ")
            );
            (Severity::Warning, text)
        } else {
            continue;
        };
        let link = Link {
            kind: "topic",
            name: topic.info.name.clone(),
            partition: Some(partition.partition),
        };
        found.push(Attention {
            severity,
            text,
            link,
        });
    }
    found
}

fn of_broker(id: i32, severity: Severity, text: String) -> Attention {
    let link = Link {
        kind: "broker",
        name: id.to_string(),
        partition: None,
    };
    Attention {
        severity,
        text,
        link,
    }
}

fn of_brokers(snapshot: &Snapshot) -> impl Iterator<Item = Attention> {
    let fenced = snapshot.brokers.iter().filter(|it| it.is_fenced);
    fenced.map(|it| {
        let text = format!(
            "Broker {} ({}:{}) is registered and not running",
            it.id, it.host, it.port
        );
        of_broker(it.id, Severity::Warning, text)
    })
}

fn of_disks(snapshot: &Snapshot) -> Vec<Attention> {
    let mut found = Vec::new();
    for broker in &snapshot.brokers {
        for dir in broker.log_dirs.iter().flatten() {
            let path = &*dir.log_dir;
            if dir.error_code != 0 {
                let reason = ErrorCode::from_code(dir.error_code).message();
                let text = format!("Broker {}: {path} is offline: {reason}", broker.id);
                found.push(of_broker(broker.id, Severity::Critical, text));
            } else if dir.total_bytes > 0 && dir.usable_bytes >= 0 {
                let used = 1.0 - dir.usable_bytes as f64 / dir.total_bytes as f64;
                let severity = match used {
                    used if used >= FULL => Severity::Critical,
                    used if used >= NEARLY_FULL => Severity::Warning,
                    _ => continue,
                };
                let text = format!(
                    "Broker {}: the volume of {path} is {:.0} % full",
                    broker.id,
                    used * 100.0
                );
                found.push(of_broker(broker.id, severity, text));
            }
        }
    }
    found
}

fn of_quorum(snapshot: &Snapshot) -> Vec<Attention> {
    let item = |severity, text| Attention {
        severity,
        text,
        link: Link {
            kind: "cluster",
            name: String::new(),
            partition: None,
        },
    };
    let Some(quorum) = &snapshot.quorum else {
        let failure = snapshot.quorum_failure.iter();
        let text = failure.map(|reason| {
            format!(
                "The metadata quorum does not answer, so nothing can be created or changed: {reason}"
            )
        });
        return text.map(|text| item(Severity::Critical, text)).collect();
    };
    let state = &quorum.state;
    let voters = &state.current_voters;
    let leader = voters.iter().find(|it| it.replica_id == state.leader_id);
    let Some(leader) = leader else {
        let text =
            "The metadata quorum has no leader; start the controllers, most of them must run";
        return vec![item(Severity::Critical, text.to_owned())];
    };
    let behind = voters
        .iter()
        .filter(|it| it.log_end_offset < 0 || leader.log_end_offset - it.log_end_offset > MUCH_LAG);
    behind
        .map(|it| {
            let text = format!("Controller {} is away or behind", it.replica_id);
            item(Severity::Warning, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ottla_client::{PartitionInfo, TopicInfo};
    use ottla_types::Uuid;

    use super::*;
    use crate::view::Broker;

    /// A topic whose partitions have this leader, and this number of in-sync replicas out of two.
    fn snapshot(partitions: &[(i32, usize)], min_insync_replicas: i64) -> Snapshot {
        let partition = |(number, (leader, isr)): (usize, &(i32, usize))| PartitionInfo {
            partition: number as i32,
            error: ErrorCode::None,
            leader: *leader,
            leader_epoch: 0,
            replicas: vec![1, 2],
            isr: [1, 2][..*isr].to_vec(),
            offline_replicas: Vec::new(),
        };
        let topic = Topic {
            info: TopicInfo {
                name: "t".into(),
                topic_id: Uuid::ZERO,
                error: ErrorCode::None,
                is_internal: false,
                partitions: partitions.iter().enumerate().map(partition).collect(),
            },
            offsets: Vec::new(),
            bytes: None,
            leader_bytes: Vec::new(),
            settings: Some(crate::view::TopicSettings {
                retention_ms: None,
                retention_bytes: None,
                cleanup_policy: None,
                min_insync_replicas: Some(min_insync_replicas),
            }),
            records_per_second: None,
            records_out_per_second: None,
        };
        Snapshot {
            at: 0,
            cluster_id: None,
            brokers: Vec::new(),
            topics: BTreeMap::from([("t".to_owned(), topic)]),
            groups: None,
            quorum: None,
            quorum_failure: None,
            features: Vec::new(),
        }
    }

    #[test]
    fn the_sentence_names_the_worst() {
        let sentence =
            |partitions: &[(i32, usize)], least| of(&snapshot(partitions, least)).sentence;
        assert_eq!(sentence(&[], 1), "The cluster has no partitions yet.");
        assert_eq!(
            sentence(&[(1, 2), (2, 2)], 1),
            "All 2 partitions are in sync."
        );
        assert_eq!(
            sentence(&[(1, 2), (2, 1)], 1),
            "1 of 2 partitions is under-replicated."
        );
        assert!(
            sentence(&[(1, 1), (2, 1)], 2).starts_with("2 of 2 partitions are below min.insync")
        );
        assert!(
            sentence(&[(1, 1), (-1, 1)], 2).starts_with("1 of 2 partitions is without a leader")
        );
    }

    #[test]
    fn the_most_urgent_comes_first() {
        let mut sick = snapshot(&[(1, 1), (-1, 0)], 1);
        sick.brokers.push(Broker {
            id: 2,
            host: "h".into(),
            port: 9092,
            rack: None,
            is_fenced: true,
            log_dirs: None,
        });
        let found = of(&sick);
        let texts: Vec<&str> = found.attention.iter().map(|it| &*it.text).collect();
        assert_eq!(found.health, "critical");
        assert_eq!(
            texts,
            [
                "t-1 has no leader; start the brokers [1, 2], which have its replicas",
                "t-0: the replica on broker 2 is not in sync",
                "Broker 2 (h:9092) is registered and not running",
            ]
        );
    }

    #[test]
    fn a_quorum_that_does_not_answer_is_critical_although_all_partitions_are_in_sync() {
        let mut led = snapshot(&[(1, 2), (2, 2)], 1);
        assert_eq!(of(&led).health, "ok");
        led.quorum_failure = Some("no active controller".into());
        let found = of(&led);
        assert_eq!(found.health, "critical");
        assert_eq!(
            found.sentence,
            "All 2 partitions are in sync; 1 other thing needs attention."
        );
        let text = &found.attention[0].text;
        assert!(text.ends_with(": no active controller"), "{text}");
    }

    #[test]
    fn the_list_is_bounded() {
        let found = of(&snapshot(&[(-1, 0); 60], 1));
        assert_eq!((found.attention.len(), found.attention_total), (SHOWN, 60));
    }
}
