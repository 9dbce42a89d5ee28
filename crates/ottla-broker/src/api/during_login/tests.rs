use bytes::Bytes;
use ottla_protocol::ApiMessage;

use super::*;

const REASON: &str = "not now";
const CODE: i16 = 34;

fn answer(api_key: ApiKey, version: i16, body: Bytes) -> Option<Bytes> {
    let answer = refuse(&MisplacedRequest {
        api_key,
        api_version: version,
        correlation_id: 7,
        body: Reader::new(body),
        reason: REASON.to_owned(),
    })?;
    Some(answer.into_bytes())
}

/// The response to a request in this version.
fn response<M: ApiMessage>(version: i16, body: Bytes) -> M {
    let bytes = answer(M::API_KEY, version, body).expect("a response");
    let mut reader = Reader::new(bytes);
    let length = reader.i32().expect("a length");
    assert_eq!(length as usize, reader.remaining());
    let header_version = M::API_KEY.response_header_version(version);
    let header = ResponseHeader::decode(&mut reader, header_version).expect("a header");
    assert_eq!(header.correlation_id, 7);
    let message = M::decode(&mut reader, version).expect("a response");
    reader.expect_end().expect("nothing more");
    message
}

fn written<M: Message>(request: &M, version: i16) -> Bytes {
    request.encode_to_bytes(version).expect("a request")
}

/// A request that names nothing, of the two that are decoded.
fn body(api_key: ApiKey, version: i16) -> Bytes {
    match api_key {
        ApiKey::Metadata => written(&MetadataRequest::default(), version),
        ApiKey::FindCoordinator => written(&FindCoordinatorRequest::default(), version),
        _ => Bytes::new(),
    }
}

/// The requests without a response, in at least one version.
const UNANSWERED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::DescribeGroups,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::AddPartitionsToTxn,
    ApiKey::WriteTxnMarkers,
    ApiKey::TxnOffsetCommit,
    ApiKey::CreateAcls,
    ApiKey::DeleteAcls,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::AlterReplicaLogDirs,
    ApiKey::SaslAuthenticate,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::ElectLeaders,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
    ApiKey::AlterClientQuotas,
    ApiKey::DescribeUserScramCredentials,
    ApiKey::AlterUserScramCredentials,
    ApiKey::DescribeProducers,
    ApiKey::DescribeTransactions,
    ApiKey::ConsumerGroupDescribe,
    ApiKey::DescribeTopicPartitions,
    ApiKey::ShareGroupDescribe,
    ApiKey::InitializeShareGroupState,
    ApiKey::ReadShareGroupState,
    ApiKey::WriteShareGroupState,
    ApiKey::DeleteShareGroupState,
    ApiKey::ReadShareGroupStateSummary,
    ApiKey::StreamsGroupDescribe,
    ApiKey::DescribeShareGroupOffsets,
];

/// Every response can be encoded in every version, contains the error where it has a place for it, and is small.
#[test]
fn the_responses_of_all_apis_are_small_and_have_the_error() {
    let mut unanswered = Vec::new();
    for &api_key in ApiKey::ALL {
        for version in api_key.valid_versions() {
            let Some(bytes) = answer(api_key, version, body(api_key, version)) else {
                unanswered.push(api_key);
                continue;
            };
            assert!(bytes.len() < 128, "{api_key} {version}: {}", bytes.len());
            let has_place = match api_key {
                // For each topic, or of the whole response.
                ApiKey::Metadata => version >= 13,
                // For each key.
                ApiKey::FindCoordinator => version < 4,
                ApiKey::DescribeLogDirs => version >= 3,
                _ => true,
            };
            let has_error = bytes[4..].windows(2).any(|it| it == CODE.to_be_bytes());
            assert_eq!(has_error, has_place, "{api_key} {version}");
        }
    }
    unanswered.dedup();
    assert_eq!(unanswered, UNANSWERED);
}

#[test]
fn some_responses_have_more_than_the_error() {
    let old: JoinGroupResponse = response(6, Bytes::new());
    assert_eq!((old.error_code, old.generation_id), (CODE, -1));
    assert_eq!(old.protocol_name.as_deref(), Some(""));
    assert_eq!(
        response::<JoinGroupResponse>(7, Bytes::new()).protocol_name,
        None
    );

    let producer: InitProducerIdResponse = response(5, Bytes::new());
    assert_eq!((producer.producer_id, producer.producer_epoch), (-1, -1));

    let quotas: DescribeClientQuotasResponse = response(1, Bytes::new());
    assert_eq!(quotas.error_message.as_deref(), Some(REASON));
    assert_eq!(quotas.entries, None);
    for message in [
        response::<UpdateFeaturesResponse>(2, Bytes::new()).error_message,
        response::<UnregisterBrokerResponse>(0, Bytes::new()).error_message,
        response::<UnregisterControllerResponse>(0, Bytes::new()).error_message,
        response::<StreamsGroupTopologyDescriptionUpdateResponse>(0, Bytes::new()).error_message,
    ] {
        assert_eq!(message.as_deref(), Some(REASON));
    }

    let quorum: DescribeQuorumResponse = response(2, Bytes::new());
    assert_eq!(quorum.error_message.as_deref(), Some(ERROR.message()));

    let offsets: AlterShareGroupOffsetsResponse = response(0, Bytes::new());
    assert_eq!(offsets.error_code, CODE);
    assert_eq!(offsets.error_message.as_deref(), Some(ERROR.message()));

    let token: CreateDelegationTokenResponse = response(3, Bytes::new());
    assert_eq!(&*token.token_requester_principal_name, "ANONYMOUS");
    assert_eq!(token.max_timestamp_ms, -1);

    let coordinator: FindCoordinatorResponse = response(0, Bytes::new());
    assert_eq!((coordinator.error_code, coordinator.node_id), (CODE, -1));

    // A version that is not known, which has a body that is not known.
    let unknown = answer(ApiKey::ApiVersions, 99, Bytes::from_static(b"?"));
    assert_eq!(unknown, answer(ApiKey::ApiVersions, 0, Bytes::new()));
    assert!(unknown.is_some());
}

#[test]
fn names_are_repeated_if_the_request_is_short() {
    let topic = |name: &'static str| metadata_request::MetadataRequestTopic {
        name: Some(name.into()),
        ..Default::default()
    };
    let mut request = MetadataRequest {
        topics: Some(vec![topic("a"), topic("b")]),
        ..Default::default()
    };
    let answered: MetadataResponse = response(12, written(&request, 12));
    let topics = answered.topics.iter();
    let topics: Vec<_> = topics
        .map(|it| (it.error_code, it.name.as_deref()))
        .collect();
    assert_eq!(topics, [(CODE, Some("a")), (CODE, Some("b"))]);
    assert!(answered.brokers.is_empty());

    request.topics = None;
    let all: MetadataResponse = response(1, written(&request, 1));
    assert!(all.topics.is_empty());

    request.topics = Some(vec![topic("a topic"); MOST_BODY_BYTES / 8]);
    assert_eq!(answer(ApiKey::Metadata, 9, written(&request, 9)), None);
    assert_eq!(
        answer(ApiKey::Metadata, 9, Bytes::from_static(&[5, 1])),
        None
    );

    let mut request = FindCoordinatorRequest {
        coordinator_keys: vec!["one".into(), "two".into()],
        ..Default::default()
    };
    let answered: FindCoordinatorResponse = response(4, written(&request, 4));
    let keys = answered.coordinators.iter();
    let keys: Vec<_> = keys
        .map(|it| (it.error_code, it.node_id, &*it.key))
        .collect();
    assert_eq!(keys, [(CODE, -1, "one"), (CODE, -1, "two")]);

    // The longest response there is.
    request.coordinator_keys = vec!["".into(); MOST_BODY_BYTES - 4];
    let bytes = answer(ApiKey::FindCoordinator, 6, written(&request, 6));
    assert!(bytes.expect("a response").len() <= 64 * MOST_BODY_BYTES);
}
