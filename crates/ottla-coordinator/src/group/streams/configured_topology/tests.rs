//! Topologies and cluster topics, with the results of Kafka 4.3.1's `InternalTopicManager`
//! (`cases.txt`).
//!
//! `sub 1 sources=b repartition=r:3 sinks=z changelogs=s group=0/1` is a subtopology whose
//! repartition topic `r` must have 3 partitions. Its copartition group consists of the first source
//! and the second repartition topic.

use std::fmt::Write as _;

use ottla_protocol::coordinator_records::StreamsGroupTopologyValue;
use ottla_protocol::coordinator_records::streams_group_topology_value::{
    CopartitionGroup, Subtopology, TopicConfig, TopicInfo,
};
use ottla_types::ErrorCode;

use super::ConfiguredTopology;
use crate::group::modern::test_image::TestImage;
use crate::group::streams::topology::StreamsTopology;

fn items(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split(',').filter(|item| !item.is_empty())
}

fn indexes(text: &'static str) -> Vec<i16> {
    items(text).map(|item| item.parse().unwrap()).collect()
}

fn topic_infos(text: &'static str) -> Vec<TopicInfo> {
    items(text)
        .map(|item| {
            let (name, partitions) = item.split_once(':').unwrap_or((item, "0"));
            TopicInfo {
                name: name.into(),
                partitions: partitions.parse().unwrap(),
                ..Default::default()
            }
        })
        .collect()
}

fn subtopology(line: &'static str) -> Subtopology {
    let mut words = line.split(' ').skip(1);
    let mut subtopology = Subtopology {
        subtopology_id: words.next().unwrap().into(),
        ..Default::default()
    };
    for word in words {
        match word.split_once('=').unwrap() {
            ("sources", topics) => {
                subtopology.source_topics = items(topics).map(Into::into).collect();
            }
            ("sinks", topics) => {
                subtopology.repartition_sink_topics = items(topics).map(Into::into).collect();
            }
            ("repartition", topics) => subtopology.repartition_source_topics = topic_infos(topics),
            ("changelogs", topics) => subtopology.state_changelog_topics = topic_infos(topics),
            ("group", group) => {
                let (sources, repartitioned) = group.split_once('/').unwrap();
                subtopology.copartition_groups.push(CopartitionGroup {
                    source_topics: indexes(sources),
                    repartition_source_topics: indexes(repartitioned),
                    ..Default::default()
                });
            }
            other => panic!("{other:?}"),
        }
    }
    subtopology
}

fn configured(case: &'static str) -> String {
    let mut image = TestImage::new();
    let mut value = StreamsGroupTopologyValue::default();
    for line in case.lines().filter(|line| !line.starts_with("->")) {
        if let Some(topics) = line.strip_prefix("topics ") {
            for (name, partitions) in topics.split(' ').map(|it| it.split_once('=').unwrap()) {
                image = image.topic(name, partitions.parse().unwrap());
            }
        } else if line.starts_with("sub ") {
            value.subtopologies.push(subtopology(line));
        }
    }
    let topology = StreamsTopology::from_record(&value).unwrap();
    show(ConfiguredTopology::configure(&topology, 7, &image.build()))
}

fn show(configured: Result<ConfiguredTopology, crate::group::modern::GroupError>) -> String {
    let mut text = String::new();
    let configured = match configured {
        Ok(configured) => configured,
        Err(refused) => {
            let message = refused.message.as_deref().unwrap_or("-");
            return format!("-> error {} {message}\n", refused.error.name());
        }
    };
    for (id, it) in configured.subtopologies.iter().flatten() {
        write!(text, "-> {id} tasks={}", it.number_of_tasks).unwrap();
        for (name, topic) in &it.repartition_source_topics {
            write!(text, " {name}={}", topic.number_of_partitions).unwrap();
        }
        text += " |";
        for (name, topic) in &it.state_changelog_topics {
            write!(text, " {name}={}", topic.number_of_partitions).unwrap();
        }
        text += "\n";
    }
    if !configured.internal_topics_to_create.is_empty() {
        text += "-> create";
        for topic in &configured.internal_topics_to_create {
            write!(text, " {}={}", topic.name, topic.num_partitions).unwrap();
        }
        text += "\n";
    }
    if let Some(error) = configured.error {
        let status = error.status.with(error.detail);
        writeln!(
            text,
            "-> status {} {}",
            status.status_code, status.status_detail
        )
        .unwrap();
    }
    text
}

#[test]
fn topologies_are_configured_as_kafka_configures_them() {
    let mut num_cases = 0;
    for case in include_str!("cases.txt").split("\n\n") {
        let expected: Vec<&str> = case.lines().filter(|it| it.starts_with("->")).collect();
        assert!(!expected.is_empty(), "{case}");
        let actual = configured(case);
        assert_eq!(actual.lines().collect::<Vec<_>>(), expected, "\n{case}");
        num_cases += 1;
    }
    assert_eq!(num_cases, 29);
}

#[test]
fn missing_topics_are_created_with_the_configuration_of_the_application() {
    let store = TopicInfo {
        name: "store".into(),
        replication_factor: 3,
        topic_configs: vec![TopicConfig {
            key: "cleanup.policy".into(),
            value: "compact".into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let by_default = TopicInfo {
        name: "other".into(),
        ..Default::default()
    };
    let value = StreamsGroupTopologyValue {
        subtopologies: vec![Subtopology {
            state_changelog_topics: vec![store, by_default],
            ..subtopology("sub 0 sources=in")
        }],
        ..Default::default()
    };
    let topology = StreamsTopology::from_record(&value).unwrap();
    let image = TestImage::new().topic("in", 2).build();
    let mut to_create = ConfiguredTopology::configure(&topology, 7, &image)
        .unwrap()
        .internal_topics_to_create;
    to_create.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(to_create[0].replication_factor, -1);
    assert!(to_create[0].configs.is_empty());
    assert_eq!(to_create[1].replication_factor, 3);
    assert_eq!(to_create[1].configs.len(), 1);
    assert_eq!(to_create[1].configs[0].name, "cleanup.policy");
    assert_eq!(to_create[1].configs[0].value, Some("compact".into()));
}

#[test]
fn a_topic_configuration_that_is_given_twice_is_refused() {
    let config = || TopicConfig {
        key: "k".into(),
        ..Default::default()
    };
    let store = TopicInfo {
        name: "store".into(),
        topic_configs: vec![config(), config()],
        ..Default::default()
    };
    let value = StreamsGroupTopologyValue {
        subtopologies: vec![Subtopology {
            state_changelog_topics: vec![store],
            ..subtopology("sub 0 sources=in")
        }],
        ..Default::default()
    };
    let topology = StreamsTopology::from_record(&value).unwrap();
    let image = TestImage::new().topic("in", 2).build();
    let error = ConfiguredTopology::configure(&topology, 7, &image).unwrap_err();
    assert_eq!(error.error, ErrorCode::UnknownServerError);
}

#[test]
fn subtopologies_have_ids_of_their_own() {
    let value = StreamsGroupTopologyValue {
        subtopologies: vec![
            subtopology("sub 0 sources=a"),
            subtopology("sub 0 sources=b"),
        ],
        ..Default::default()
    };
    assert_eq!(StreamsTopology::from_record(&value), None);
}

#[test]
fn a_topology_knows_which_subtopology_reads_a_topic() {
    let value = StreamsGroupTopologyValue {
        subtopologies: vec![
            subtopology("sub 0 sources=a sinks=r changelogs=s"),
            subtopology("sub 1 repartition=r"),
        ],
        ..Default::default()
    };
    let topology = StreamsTopology::from_record(&value).unwrap();
    let reading = |topic| topology.reading_from(topic).map(|id| &**id);
    assert_eq!(reading("a"), Some("0"));
    assert_eq!(reading("r"), Some("1"));
    assert_eq!(reading("s"), None);
    let required: Vec<_> = topology.required_topics().into_iter().collect();
    assert_eq!(required, ["a", "r", "s"]);
}
