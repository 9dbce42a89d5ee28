//! State that the cluster stores: client quotas and SCRAM credentials.

use bytes::Bytes;
use ottla_protocol::messages::describe_client_quotas_request::ComponentData;
use ottla_protocol::messages::*;
use ottla_types::ErrorCode;

use super::TestBroker;

fn alteration(
    parts: &[(&'static str, Option<&'static str>)],
) -> alter_client_quotas_request::EntryData {
    alter_client_quotas_request::EntryData {
        entity: parts
            .iter()
            .map(
                |&(entity_type, name)| alter_client_quotas_request::EntityData {
                    entity_type: entity_type.into(),
                    entity_name: name.map(Into::into),
                    ..Default::default()
                },
            )
            .collect(),
        ops: ["consumer_byte_rate", "producer_byte_rate"]
            .map(|key| alter_client_quotas_request::OpData {
                key: key.into(),
                value: 1000.0,
                ..Default::default()
            })
            .to_vec(),
        ..Default::default()
    }
}

fn component(
    entity_type: &'static str,
    match_type: i8,
    name: Option<&'static str>,
) -> ComponentData {
    ComponentData {
        entity_type: entity_type.into(),
        match_type,
        r#match: name.map(Into::into),
        ..Default::default()
    }
}

#[tokio::test]
async fn quotas_are_described_by_entity() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let request = AlterClientQuotasRequest {
        entries: vec![
            alteration(&[("user", Some("alice"))]),
            alteration(&[("user", Some("alice")), ("client-id", Some("app"))]),
            alteration(&[("user", None)]),
        ],
        ..Default::default()
    };
    let altered = client.ask(1, &request).await;
    assert!(altered.entries.iter().all(|entry| entry.error_code == 0));
    for (components, strict, expected) in [
        (vec![], false, 3),
        (vec![], true, 0),
        (vec![component("user", 0, Some("alice"))], false, 2),
        (vec![component("user", 0, Some("alice"))], true, 1),
        (vec![component("user", 1, None)], false, 1),
        (vec![component("user", 2, None)], false, 3),
        (vec![component("client-id", 2, None)], false, 1),
        (vec![component("ip", 2, None)], false, 0),
    ] {
        let request = DescribeClientQuotasRequest {
            components,
            strict,
            ..Default::default()
        };
        let described = client.ask(1, &request).await;
        assert_eq!(described.error_code, 0);
        let entries = described.entries.expect("no error");
        assert_eq!(entries.len(), expected, "{request:?}");
        assert!(entries.iter().all(|entry| entry.values.len() == 2));
    }
}

#[tokio::test]
async fn an_invalid_filter_is_refused() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let invalid = ErrorCode::InvalidRequest;
    for (components, error) in [
        (vec![component("", 2, None)], invalid),
        (
            vec![component("user", 2, None), component("user", 1, None)],
            invalid,
        ),
        (
            vec![component("topic", 2, None)],
            ErrorCode::UnsupportedVersion,
        ),
        (vec![component("user", 0, None)], invalid),
        (vec![component("user", 1, Some("x"))], invalid),
        (vec![component("user", 9, None)], invalid),
        (
            vec![component("ip", 2, None), component("user", 2, None)],
            invalid,
        ),
    ] {
        let request = DescribeClientQuotasRequest {
            components,
            ..Default::default()
        };
        let described = client.ask(1, &request).await;
        assert_eq!(described.error_code, error.code(), "{request:?}");
        assert_eq!(described.entries, None);
    }
}

#[tokio::test]
async fn credentials_are_described_without_their_keys() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let upsertion = |name: &'static str, mechanism| {
        alter_user_scram_credentials_request::ScramCredentialUpsertion {
            name: name.into(),
            mechanism,
            iterations: 4096,
            salt: Bytes::from_static(b"salt"),
            salted_password: Bytes::from_static(b"salted"),
            ..Default::default()
        }
    };
    for upsertion in [upsertion("a", 1), upsertion("a", 2), upsertion("b", 1)] {
        let request = AlterUserScramCredentialsRequest {
            upsertions: vec![upsertion],
            ..Default::default()
        };
        let altered = client.ask(0, &request).await;
        assert_eq!(altered.results[0].error_code, 0);
    }
    let all = client
        .ask(0, &DescribeUserScramCredentialsRequest::default())
        .await;
    let found: Vec<_> = all
        .results
        .iter()
        .map(|result| (&*result.user, result.credential_infos.len()))
        .collect();
    assert_eq!(found, [("a", 2), ("b", 1)]);
    let names =
        ["a", "c", "b", "b"].map(|name| describe_user_scram_credentials_request::UserName {
            name: name.into(),
            ..Default::default()
        });
    let some = DescribeUserScramCredentialsRequest {
        users: Some(names.to_vec()),
        ..Default::default()
    };
    let some = client.ask(0, &some).await;
    let found: Vec<_> = some
        .results
        .iter()
        .map(|result| (&*result.user, ErrorCode::from_code(result.error_code)))
        .collect();
    assert_eq!(
        found,
        [
            ("a", ErrorCode::None),
            ("b", ErrorCode::DuplicateResource),
            ("c", ErrorCode::ResourceNotFound),
        ]
    );
}
