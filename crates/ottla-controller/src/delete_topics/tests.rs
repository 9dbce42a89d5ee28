use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::metadata_records::TopicRecord;

use super::*;
use crate::test_support::Cluster;

const A: Uuid = Uuid::from_u128(1001);
const B: Uuid = Uuid::from_u128(1002);

fn cluster() -> Cluster {
    let mut cluster = Cluster::single_node();
    for (name, topic_id) in [("a", A), ("b", B)] {
        cluster.apply(&[MetadataRecord::Topic(TopicRecord {
            name: name.into(),
            topic_id,
            ..Default::default()
        })]);
    }
    cluster
}

fn by_name(name: &'static str) -> DeleteTopicState {
    DeleteTopicState {
        name: Some(name.into()),
        ..Default::default()
    }
}

fn by_id(topic_id: Uuid) -> DeleteTopicState {
    DeleteTopicState {
        name: None,
        topic_id,
        ..Default::default()
    }
}

fn delete(
    topic_names: &[&'static str],
    topics: Vec<DeleteTopicState>,
) -> Decision<DeleteTopicsResponse> {
    delete_topics(
        &cluster().context(),
        &DeleteTopicsRequest {
            topic_names: topic_names.iter().map(|&name| name.into()).collect(),
            topics,
            ..Default::default()
        },
    )
}

type Outcome = (Option<String>, Uuid, ErrorCode, Option<String>);

fn outcomes(decision: &Decision<DeleteTopicsResponse>) -> Vec<Outcome> {
    decision
        .response
        .responses
        .iter()
        .map(|result| {
            (
                result.name.as_ref().map(|name| name.to_string()),
                result.topic_id,
                ErrorCode::from_code(result.error_code),
                result
                    .error_message
                    .as_ref()
                    .map(|message| message.to_string()),
            )
        })
        .collect()
}

fn removed(topic_id: Uuid) -> MetadataRecord {
    MetadataRecord::RemoveTopic(RemoveTopicRecord {
        topic_id,
        ..Default::default()
    })
}

#[test]
fn topics_are_deleted_by_name_and_by_id() {
    let decision = delete(&["a"], vec![by_id(B)]);
    assert_eq!(decision.records, [removed(A), removed(B)]);
    assert_eq!(
        outcomes(&decision),
        [
            (Some("a".to_owned()), A, ErrorCode::None, None),
            (Some("b".to_owned()), B, ErrorCode::None, None),
        ]
    );
    assert_eq!(delete(&[], vec![by_name("b")]).records, [removed(B)]);
}

#[test]
fn unknown_topics_are_refused() {
    let unknown = Uuid::from_u128(9999);
    let decision = delete(&["nothing"], vec![by_id(unknown)]);
    assert_eq!(decision.records, []);
    assert_eq!(
        outcomes(&decision),
        [
            (
                Some("nothing".to_owned()),
                Uuid::ZERO,
                ErrorCode::UnknownTopicOrPartition,
                Some("This server does not host this topic-partition.".to_owned())
            ),
            (
                None,
                unknown,
                ErrorCode::UnknownTopicId,
                Some("This server does not host this topic ID.".to_owned())
            ),
        ]
    );
}

#[test]
fn invalid_references_are_not_deleted() {
    let message = |decision: Decision<DeleteTopicsResponse>| {
        assert_eq!(decision.records, []);
        let outcomes = outcomes(&decision);
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        assert_eq!(outcomes[0].2, ErrorCode::InvalidRequest);
        outcomes[0].3.clone().unwrap()
    };
    assert_eq!(
        message(delete(&["a", "a"], vec![])),
        "Duplicate topic name."
    );
    assert_eq!(
        message(delete(&["a"], vec![by_name("a")])),
        "Duplicate topic name."
    );
    assert_eq!(
        message(delete(&[], vec![by_id(A), by_id(A)])),
        "Duplicate topic id."
    );
    assert_eq!(
        message(delete(
            &[],
            vec![DeleteTopicState {
                name: None,
                ..Default::default()
            }]
        )),
        "Neither topic name nor id were specified."
    );
    assert_eq!(
        message(delete(
            &[],
            vec![DeleteTopicState {
                topic_id: A,
                ..by_name("a")
            }]
        )),
        "You may not specify both topic name and topic id."
    );
    assert_eq!(
        message(delete(&["a"], vec![by_id(A)])),
        "The provided topic name maps to an ID that was already supplied."
    );
}
