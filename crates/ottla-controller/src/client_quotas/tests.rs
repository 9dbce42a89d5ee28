use ottla_protocol::messages::alter_client_quotas_request::EntityData as RequestEntity;

use super::*;
use crate::test_support::Cluster;

fn entry(
    entity: &[(&'static str, Option<&'static str>)],
    ops: &[(&'static str, f64)],
) -> EntryData {
    EntryData {
        entity: entity
            .iter()
            .map(|&(entity_type, name)| RequestEntity {
                entity_type: entity_type.into(),
                entity_name: name.map(Into::into),
                ..Default::default()
            })
            .collect(),
        // A value of -1 means removal.
        ops: ops
            .iter()
            .map(|&(key, value)| OpData {
                key: key.into(),
                value,
                remove: value == -1.0,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn request(entries: Vec<EntryData>) -> AlterClientQuotasRequest {
    AlterClientQuotasRequest {
        entries,
        ..Default::default()
    }
}

fn quotas(cluster: &Cluster) -> Vec<(String, f64)> {
    let all = cluster.image.client_quotas.iter();
    all.map(|record| (record.key.to_string(), record.value))
        .collect()
}

#[test]
fn limits_are_set_changed_and_removed() {
    let mut cluster = Cluster::single_node();
    let user = [("user", Some("alice")), ("client-id", None)];
    let set = request(vec![entry(
        &user,
        &[("producer_byte_rate", 1024.0), ("request_percentage", 12.5)],
    )]);
    let decision = alter_client_quotas(&cluster.context(), &set);
    assert_eq!(decision.response.entries[0].error_code, 0);
    assert_eq!(decision.records.len(), 2);
    cluster.apply(&decision.records);
    let expected = [
        ("producer_byte_rate".to_owned(), 1024.0),
        ("request_percentage".to_owned(), 12.5),
    ];
    assert_eq!(quotas(&cluster), expected);

    // Values that are the same produce no records.
    let decision = alter_client_quotas(&cluster.context(), &set);
    assert_eq!(decision.records, []);
    let remove = request(vec![entry(
        &user,
        &[("producer_byte_rate", -1.0), ("consumer_byte_rate", -1.0)],
    )]);
    let decision = alter_client_quotas(&cluster.context(), &remove);
    assert_eq!(decision.records.len(), 1);
    cluster.apply(&decision.records);
    assert_eq!(quotas(&cluster), expected[1..]);
}

#[test]
fn validating_changes_nothing() {
    let mut cluster = Cluster::single_node();
    let mut validate = request(vec![entry(
        &[("user", None)],
        &[("request_percentage", 1.0)],
    )]);
    validate.validate_only = true;
    let decision = alter_client_quotas(&cluster.context(), &validate);
    assert_eq!(decision.records, []);
    assert_eq!(decision.response.entries[0].error_code, 0);
}

#[test]
fn invalid_quotas_get_the_error_messages_of_kafka() {
    let mut cluster = Cluster::single_node();
    let user = &[("user", Some("u"))][..];
    let ip = &[("ip", Some("10.0.0.1"))][..];
    for (entity, key, value, message) in [
        (
            &[][..],
            "request_percentage",
            1.0,
            "Invalid empty client quota entity",
        ),
        (
            &[("topic", None)],
            "request_percentage",
            1.0,
            "Unhandled client quota entity type: topic",
        ),
        (
            &[("ip", None), ("user", None)],
            "connection_creation_rate",
            1.0,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            &[("ip", Some("no address"))],
            "connection_creation_rate",
            1.0,
            "no address is not a valid IP or resolvable host.",
        ),
        (
            user,
            "connection_creation_rate",
            1.0,
            "Invalid configuration key connection_creation_rate",
        ),
        (
            ip,
            "request_percentage",
            1.0,
            "Invalid configuration key request_percentage",
        ),
        (
            user,
            "request_percentage",
            0.0,
            "Quota request_percentage must be greater than 0",
        ),
        (
            user,
            "request_percentage",
            f64::NAN,
            "Quota request_percentage must be a finite number",
        ),
        (
            user,
            "request_percentage",
            f64::INFINITY,
            "Quota request_percentage must be a finite number",
        ),
        (
            user,
            "producer_byte_rate",
            1.5,
            "producer_byte_rate cannot be a fractional value.",
        ),
        (
            ip,
            "connection_creation_rate",
            3e9,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ] {
        let decision = alter_client_quotas(
            &cluster.context(),
            &request(vec![entry(entity, &[(key, value)])]),
        );
        assert_eq!(decision.records, []);
        let result = &decision.response.entries[0];
        assert_eq!(result.error_code, ErrorCode::InvalidRequest.code());
        assert_eq!(result.error_message.as_deref(), Some(message));
    }
}

#[test]
fn a_duplicate_entity_is_applied_once_and_refused() {
    let mut cluster = Cluster::single_node();
    let twice = request(vec![
        entry(&[("user", Some("u"))], &[("request_percentage", 1.0)]),
        entry(&[("user", Some("u"))], &[("request_percentage", 2.0)]),
        entry(
            &[("user", None)],
            &[("request_percentage", 1.0), ("request_percentage", 2.0)],
        ),
    ]);
    let decision = alter_client_quotas(&cluster.context(), &twice);
    assert_eq!(decision.records.len(), 1);
    let messages: Vec<_> = decision
        .response
        .entries
        .iter()
        .map(|entry| entry.error_message.as_deref().unwrap_or_default())
        .collect();
    assert_eq!(
        messages,
        [
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})",
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=null})",
        ]
    );
}
