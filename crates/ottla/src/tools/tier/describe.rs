//! `tier describe`: local and remote data of each partition, its size and age, and stuck segments
//! with the reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use ottla_client::Admin;
use ottla_client::admin::OffsetSpec;
use ottla_tiered::{
    RemoteLogSegmentState, RemotePartition, RemotePartitionDeleteState, RemoteSegment,
};
use ottla_types::Uuid;
use serde::Serialize;

use super::remote_log::{RemoteLog, RemotePartitionLog};
use crate::columns;
use crate::counted::counted;
use crate::paragraphs::wrap;
use crate::tools::sizes;

/// The first columns, which identify a row.
const KEY_COLUMNS: usize = 2;
/// Between two columns.
const GAP: &str = "  ";

pub struct DescribeOptions {
    /// Milliseconds since 1970.
    pub now: i64,
    pub stuck_after: Duration,
    pub location: Option<String>,
}

/// The output of the tool.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Where the segments are, if settings were given.
    pub location: Option<String>,
    pub partitions: Vec<PartitionDescription>,
    /// Records of `__remote_log_metadata` that could not be read.
    pub unreadable: Vec<String>,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct PartitionDescription {
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    /// None if the topic is gone, or has another ID by now.
    pub leader: Option<i32>,
    /// Segments whose upload has ended.
    pub segments: usize,
    /// Of their logs, before compression.
    pub bytes: u64,
    /// First and last offset in remote storage, inclusive.
    pub remote_start_offset: Option<i64>,
    pub remote_end_offset: Option<i64>,
    /// The largest timestamps of the oldest and of the newest segment.
    pub oldest_timestamp_ms: Option<i64>,
    pub newest_timestamp_ms: Option<i64>,
    /// As the broker lists them; None if it does not.
    pub log_start_offset: Option<i64>,
    pub local_start_offset: Option<i64>,
    /// Exclusive.
    pub log_end_offset: Option<i64>,
    pub copying: usize,
    pub deleting: usize,
    pub deleted: usize,
    pub problems: Vec<Problem>,
}

/// An upload or a deletion that does not end, or a partition without a leader.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub segment_id: Option<String>,
    pub text: String,
}

/// The state of a partition in the cluster.
struct Current {
    topic_id: Uuid,
    leader: Option<i32>,
}

pub async fn describe(
    admin: &Admin,
    log: &RemoteLog,
    includes: impl Fn(&RemotePartition) -> bool,
    options: &DescribeOptions,
) -> anyhow::Result<Description> {
    let metadata = admin.client().refresh_metadata(None, false).await?;
    let mut described = Vec::new();
    let chosen = log
        .partitions
        .iter()
        .filter(|(partition, _)| includes(partition));
    let mut listed = Vec::new();
    for (partition, remote) in chosen {
        let topic = metadata.topics.get(&partition.topic.to_string());
        let current = topic.map(|topic| {
            let mut partitions = topic.partitions.iter();
            let found = partitions.find(|it| it.partition == partition.partition.0);
            Current {
                topic_id: topic.topic_id,
                leader: found
                    .map(|found| found.leader)
                    .filter(|leader| *leader >= 0),
            }
        });
        let brokers: Vec<i32> = metadata.brokers.keys().copied().collect();
        let one = describe_partition(partition, remote, current.as_ref(), &brokers, options);
        if one.leader.is_some() {
            listed.push((one.topic.clone(), one.partition));
        }
        described.push(one);
    }
    for spec in [
        OffsetSpec::Earliest,
        OffsetSpec::EarliestLocal,
        OffsetSpec::Latest,
    ] {
        let offsets = admin.list_offsets(&listed, spec, false).await;
        let found: BTreeMap<_, _> = offsets
            .into_iter()
            .filter_map(|(partition, listed)| Some((partition, listed.ok()?.offset)))
            .collect();
        for one in described.iter_mut().filter(|one| one.leader.is_some()) {
            let offset = found.get(&(one.topic.clone(), one.partition)).copied();
            match spec {
                OffsetSpec::Earliest => one.log_start_offset = offset,
                OffsetSpec::EarliestLocal => one.local_start_offset = offset,
                _ => one.log_end_offset = offset,
            }
        }
    }
    Ok(Description {
        location: options.location.clone(),
        partitions: described,
        unreadable: log.unreadable.clone(),
    })
}

fn describe_partition(
    partition: &RemotePartition,
    remote: &RemotePartitionLog,
    current: Option<&Current>,
    brokers: &[i32],
    options: &DescribeOptions,
) -> PartitionDescription {
    use RemoteLogSegmentState::{CopySegmentFinished, CopySegmentStarted, DeleteSegmentStarted};
    let finished = remote.in_state(CopySegmentFinished);
    let copying = remote.in_state(CopySegmentStarted);
    let deleting = remote.in_state(DeleteSegmentStarted);
    let is_gone = current.is_none_or(|current| current.topic_id != partition.topic_id);
    let leader = current
        .filter(|_| !is_gone)
        .and_then(|current| current.leader);
    let mut problems = Vec::new();
    for (segment, verb) in copying
        .iter()
        .map(|segment| (segment, "upload"))
        .chain(deleting.iter().map(|segment| (segment, "deletion")))
    {
        let age = options.now.saturating_sub(segment.event_timestamp.0);
        if i128::from(age) < options.stuck_after.as_millis() as i128 {
            continue;
        }
        problems.push(Problem {
            segment_id: Some(segment.id.to_string()),
            text: format!(
                "the {verb} of offsets {} to {} began {} ago on broker {} and has not ended: {}",
                segment.start_offset,
                segment.end_offset,
                sizes::age_ms(age),
                segment.broker_id,
                why(segment, verb, is_gone, leader, brokers)
            ),
        });
    }
    if let Some(deletion) = &remote.deletion {
        let has_ended = deletion.state == RemotePartitionDeleteState::DeletePartitionFinished;
        if !has_ended || !remote.segments.is_empty() {
            problems.push(Problem {
                segment_id: None,
                text: format!(
                    "the deletion of the partition is in state {:?}, and {}",
                    deletion.state,
                    left(remote.segments.len())
                ),
            });
        }
    } else if is_gone && !remote.segments.is_empty() {
        problems.push(Problem {
            segment_id: None,
            text: format!(
                "the cluster has no topic {} with this ID any more, and {}",
                partition.topic,
                left(remote.segments.len())
            ),
        });
    }
    let bytes = |segment: &&RemoteSegment| u64::try_from(segment.segment_size_bytes).unwrap_or(0);
    PartitionDescription {
        topic: partition.topic.to_string(),
        topic_id: partition.topic_id.to_string(),
        partition: partition.partition.0,
        leader,
        segments: finished.len(),
        bytes: finished.iter().map(bytes).sum(),
        remote_start_offset: finished.first().map(|segment| segment.start_offset.0),
        remote_end_offset: finished.iter().map(|segment| segment.end_offset.0).max(),
        oldest_timestamp_ms: finished.iter().map(|it| it.max_timestamp.0).min(),
        newest_timestamp_ms: finished.iter().map(|it| it.max_timestamp.0).max(),
        log_start_offset: None,
        local_start_offset: None,
        log_end_offset: None,
        copying: copying.len(),
        deleting: deleting.len(),
        deleted: remote.deleted,
        problems,
    }
}

fn left(segments: usize) -> String {
    let verb = if segments == 1 { "is" } else { "are" };
    format!("{} {verb} left", counted(segments, "segment"))
}

/// The reason why the segment is stuck, and the broker that must continue.
fn why(
    segment: &RemoteSegment,
    verb: &str,
    is_gone: bool,
    leader: Option<i32>,
    brokers: &[i32],
) -> String {
    let started_by = segment.broker_id.0;
    if is_gone {
        return "its topic is deleted; the brokers that led its partitions delete the remaining segments"
            .to_owned();
    }
    let Some(leader) = leader else {
        return "the partition has no leader, and only a leader continues it".to_owned();
    };
    let is_there = brokers.contains(&started_by);
    match verb {
        "deletion" => format!(
            "the leader, broker {leader}, tries it again at every remote.log.manager.task.interval.ms; \
             see its log for the store's answer"
        ),
        _ if leader == started_by => format!(
            "broker {leader} still leads the partition: the upload is running, or the store does \
             not answer, or the broker was restarted meanwhile and deletes it when the segment \
             expires (Ottla: an hour after it began)"
        ),
        _ => {
            let fate = if is_there {
                "no longer leads it"
            } else {
                "is not in the cluster"
            };
            format!(
                "that broker {fate}; the leader, broker {leader}, uploads the offsets anew, and \
                 deletes the remains when the segment expires (Ottla: an hour after it began)"
            )
        }
    }
}

/// The description as a table, with a line for each problem below it. For a `terminal` with that
/// many columns, a wider table is split, and problems are wrapped.
pub fn text(description: &Description, terminal: Option<usize>) -> String {
    let mut out = String::new();
    if let Some(location) = &description.location {
        let _ = writeln!(out, "Store: {location}");
    }
    if description.partitions.is_empty() {
        out.push_str("Nothing is in remote storage.\n");
    } else {
        let titles = [
            "TOPIC",
            "PARTITION",
            "LEADER",
            "SEGMENTS",
            "SIZE",
            "REMOTE-OFFSETS",
            "LOCAL-OFFSETS",
            "OLDEST",
            "NEWEST",
            "COPYING",
            "DELETING",
            "DELETED",
        ];
        let mut rows = vec![titles.map(str::to_owned)];
        rows.extend(description.partitions.iter().map(row));
        let widths = columns::widths(&rows);
        let groups = groups(&widths, terminal.unwrap_or(usize::MAX));
        for (index, group) in groups.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let of_group = |row: &[String; 12]| -> Vec<String> {
                group.iter().map(|column| row[*column].clone()).collect()
            };
            let rows: Vec<_> = rows.iter().map(of_group).collect();
            for line in columns::lines(&rows, GAP) {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    let mut sentence = |sentence: &str| match terminal {
        Some(_) => wrap(&mut out, "", GAP, sentence),
        None => {
            let _ = writeln!(out, "{sentence}");
        }
    };
    for one in &description.partitions {
        for problem in &one.problems {
            let segment = match &problem.segment_id {
                Some(id) => format!(" segment {id}"),
                None => String::new(),
            };
            let (topic, partition) = (&one.topic, one.partition);
            sentence(&format!("{topic}-{partition}{segment}: {}", problem.text));
        }
    }
    for unreadable in &description.unreadable {
        sentence(unreadable);
    }
    out
}

/// Groups of columns that are at most this wide, as far as possible. Each starts with the key
/// columns.
fn groups(widths: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    let mut group: Vec<usize> = (0..KEY_COLUMNS).collect();
    for (column, width) in widths.iter().enumerate().skip(KEY_COLUMNS) {
        let before: usize = group.iter().map(|it| widths[*it] + GAP.len()).sum();
        if group.len() > KEY_COLUMNS && before + width > limit {
            groups.push(group);
            group = (0..KEY_COLUMNS).collect();
        }
        group.push(column);
    }
    groups.push(group);
    groups
}

fn row(one: &PartitionDescription) -> [String; 12] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let range = |from: Option<i64>, to: Option<i64>| {
        or_dash(
            from.zip(to)
                .filter(|(from, to)| from <= to)
                .map(|(from, to)| format!("{from}..{to}")),
        )
    };
    let time = |ms: Option<i64>| {
        or_dash(ms.and_then(|ms| {
            let moment = jiff::Timestamp::from_millisecond(ms).ok()?;
            Some(moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        }))
    };
    [
        one.topic.clone(),
        one.partition.to_string(),
        or_dash(one.leader.map(|leader| leader.to_string())),
        one.segments.to_string(),
        sizes::bytes(one.bytes),
        range(one.remote_start_offset, one.remote_end_offset),
        range(
            one.local_start_offset,
            one.log_end_offset.map(|end| end - 1),
        ),
        time(one.oldest_timestamp_ms),
        time(one.newest_timestamp_ms),
        one.copying.to_string(),
        one.deleting.to_string(),
        one.deleted.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::remote_log::tests::{announced, partition, segment, update};
    use super::*;

    fn described(current: Option<Current>) -> PartitionDescription {
        use RemoteLogSegmentState::*;
        let mut log = RemoteLog::default();
        let finished = segment(1, 0, 9, CopySegmentStarted);
        let deleting = segment(3, 20, 29, CopySegmentStarted);
        for value in [
            announced(finished.clone()),
            update(&finished, CopySegmentFinished),
            announced(segment(2, 10, 19, CopySegmentStarted)),
            announced(deleting.clone()),
            update(&deleting, DeleteSegmentStarted),
        ] {
            log.apply(&value, "here");
        }
        let options = DescribeOptions {
            now: 1_000_000,
            stuck_after: Duration::from_secs(400),
            location: None,
        };
        let partition = partition("t");
        let remote = &log.partitions[&partition];
        describe_partition(&partition, remote, current.as_ref(), &[1, 5], &options)
    }

    #[test]
    fn stuck_segments_are_reported_with_the_responsible_broker() {
        let topic_id = Uuid::from_u128(9);
        let leader = Some(5);
        let one = described(Some(Current { topic_id, leader }));
        assert_eq!(
            (one.segments, one.bytes, one.copying, one.deleting),
            (1, 1000, 1, 1)
        );
        assert_eq!(
            (one.remote_start_offset, one.remote_end_offset),
            (Some(0), Some(9))
        );
        let texts: Vec<&str> = one.problems.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "the upload of offsets 10 to 19 began 8 min ago on broker 1 and has not ended: that \
                 broker no longer leads it; the leader, broker 5, uploads the offsets anew, and \
                 deletes the remains when the segment expires (Ottla: an hour after it began)",
                "the deletion of offsets 20 to 29 began 6 min ago on broker 2 and has not ended: the \
                 leader, broker 5, tries it again at every remote.log.manager.task.interval.ms; see \
                 its log for the store's answer",
            ]
        );
    }

    #[test]
    fn segments_of_a_deleted_topic_are_reported() {
        let other = Current {
            topic_id: Uuid::from_u128(10),
            leader: Some(1),
        };
        for current in [None, Some(other)] {
            let one = described(current);
            assert_eq!(one.leader, None);
            let last = one.problems.last().unwrap();
            assert_eq!(
                last.text,
                "the cluster has no topic t with this ID any more, and 3 segments are left"
            );
        }
    }

    #[test]
    fn the_table_is_aligned_and_marks_unknown_values() {
        let description = Description {
            location: Some("s3://b/".to_owned()),
            partitions: vec![described(None)],
            unreadable: vec!["x".to_owned()],
        };
        let narrow = text(&description, Some(80));
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        let titles: Vec<&str> = narrow
            .lines()
            .filter(|line| line.starts_with("TOPIC  PARTITION  "))
            .collect();
        for title in ["REMOTE-OFFSETS", "NEWEST", "DELETED"] {
            let found = titles.iter().filter(|line| line.contains(title));
            assert_eq!(found.count(), 1, "{narrow}");
        }
        let text = text(&description, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Store: s3://b/");
        assert!(lines[1].starts_with("TOPIC  PARTITION  LEADER  SEGMENTS  SIZE    REMOTE-OFFSETS"));
        assert!(
            lines[2].starts_with("t      0          -       1         1000 B  0..9            -")
        );
        assert_eq!(lines.last(), Some(&"x"));
    }
}
