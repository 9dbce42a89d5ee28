//! A node with the authorizer: permissions by principal and address, and the permissions of
//! forwarded requests.
//!
//! Without TLS and SASL every client is `User:ANONYMOUS`, so the clients differ by their address.

use std::net::{IpAddr, Ipv4Addr};

use bytes::{Bytes, BytesMut};
use ottla_metadata::ConfigResourceType;
use ottla_protocol::messages::alter_partition_reassignments_request::ReassignableTopic;
use ottla_protocol::messages::create_acls_request::AclCreation;
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::describe_configs_request::DescribeConfigsResource;
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::metadata_response::MetadataResponseTopic;
use ottla_protocol::messages::{
    AllocateProducerIdsRequest, AlterClientQuotasRequest, AlterPartitionReassignmentsRequest,
    AlterPartitionRequest, AssignReplicasToDirsRequest, BeginQuorumEpochRequest,
    BrokerHeartbeatRequest, BrokerRegistrationRequest, ControllerRegistrationRequest,
    CreateAclsRequest, CreateTopicsResponse, DeleteAclsRequest, DeleteTopicsRequest,
    DescribeAclsRequest, DescribeClientQuotasRequest, DescribeClusterRequest,
    DescribeConfigsRequest, DescribeQuorumRequest, DescribeUserScramCredentialsRequest,
    ElectLeadersRequest, EndQuorumEpochRequest, EnvelopeRequest, FetchRequest,
    FetchSnapshotRequest, InitProducerIdRequest, ListPartitionReassignmentsRequest,
    MetadataRequest, RequestHeader, ResponseHeader, UnregisterBrokerRequest, UpdateFeaturesRequest,
    VoteRequest,
};
use ottla_protocol::metadata_records::{AccessControlEntryRecord, MetadataRecord};
use ottla_protocol::{ApiKey, ApiRequest, Message, Reader};
use ottla_security::{Operation, PatternType, PermissionType, Principal, ResourceType};
use ottla_types::{ErrorCode, Uuid};

use super::client::Client;
use super::{TestBroker, creation};
use crate::Endpoint;

const ADMIN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const USER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Anonymous clients from one address may do everything; those from the other may read topics that
/// start with `team-`.
async fn broker() -> TestBroker {
    let broker = TestBroker::start_with(&[
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:admin"),
    ])
    .await;
    let acl =
        |id, host: IpAddr, operation: Operation, resource: ResourceType, pattern, name: &str| {
            MetadataRecord::AccessControlEntry(AccessControlEntryRecord {
                id: Uuid::from_u128(id),
                resource_type: resource.code(),
                resource_name: name.to_owned().into(),
                pattern_type: pattern,
                principal: "User:ANONYMOUS".into(),
                host: host.to_string().into(),
                operation: operation.code(),
                permission_type: PermissionType::Allow.code(),
                ..Default::default()
            })
        };
    let (literal, prefixed) = (PatternType::Literal.code(), PatternType::Prefixed.code());
    let all = Operation::All;
    let acls = vec![
        acl(
            1,
            ADMIN,
            all,
            ResourceType::Cluster,
            literal,
            "kafka-cluster",
        ),
        acl(2, ADMIN, all, ResourceType::Topic, literal, "*"),
        acl(
            3,
            USER,
            Operation::Read,
            ResourceType::Topic,
            prefixed,
            "team-",
        ),
    ];
    broker.write(acls).await;
    broker.create_topic("team-a", 1, &[]).await;
    broker.create_topic("other", 1, &[]).await;
    broker
}

impl TestBroker {
    async fn connect_from(&self, from: IpAddr, endpoint: Endpoint) -> Client {
        Client::connect_from(from, self.address(endpoint)).await
    }
}

/// The error codes in a response.
async fn errors<R: ApiRequest>(client: &mut Client, version: i16, request: &R) -> Vec<ErrorCode> {
    let response = client.ask(version, request).await;
    let mut errors = Vec::new();
    response.for_each_error_code(version, &mut |code| errors.push(ErrorCode::from_code(code)));
    errors.retain(|code| *code != ErrorCode::None);
    errors
}

fn latest<R: ApiRequest>() -> i16 {
    *R::API_KEY.stable_versions().end()
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_visible_to_authorized_clients() {
    let broker = broker().await;
    let mut user = broker.connect_from(USER, Endpoint::Broker).await;
    let all = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    let seen = |response: ottla_protocol::messages::MetadataResponse| {
        let topics = response.topics.into_iter();
        let mut seen: Vec<(String, i16)> = topics
            .map(|topic| (topic.name.unwrap_or_default().to_string(), topic.error_code))
            .collect();
        seen.sort();
        seen
    };
    assert_eq!(seen(user.ask(12, &all).await), [("team-a".to_owned(), 0)]);
    let named = |name: &str| MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.to_owned().into()),
            ..Default::default()
        }]),
        allow_auto_topic_creation: true,
        include_topic_authorized_operations: true,
        ..Default::default()
    };
    let denied = ErrorCode::TopicAuthorizationFailed.code();
    for (name, code) in [
        ("other", denied),
        ("nothing", denied),
        ("team-new", denied),
        ("team-a", 0),
    ] {
        let response = user.ask(12, &named(name)).await;
        if code == 0 {
            let operations = Operation::Read.bit() | Operation::Describe.bit();
            assert_eq!(response.topics[0].topic_authorized_operations, operations);
        } else {
            let default = MetadataResponseTopic::default().topic_authorized_operations;
            assert_eq!(response.topics[0].topic_authorized_operations, default);
        }
        assert_eq!(seen(response), [(name.to_owned(), code)]);
    }
    let mut admin = broker.connect_from(ADMIN, Endpoint::Broker).await;
    let both = [("other".to_owned(), 0), ("team-a".to_owned(), 0)];
    assert_eq!(seen(admin.ask(12, &all).await), both);
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_created_and_deleted_by_authorized_clients() {
    let broker = broker().await;
    let mut user = broker.connect_from(USER, Endpoint::Broker).await;
    let mut admin = broker.connect_from(ADMIN, Endpoint::Broker).await;
    let create = creation("mine", 1, 1);
    let denied = [ErrorCode::TopicAuthorizationFailed];
    assert_eq!(errors(&mut user, 7, &create).await, denied);
    assert_eq!(errors(&mut admin, 7, &create).await, []);
    let delete = |name: Option<&str>, topic_id| DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: name.map(|name| name.to_owned().into()),
            topic_id,
            ..Default::default()
        }],
        ..Default::default()
    };
    let known = super::topic_id("other");
    for (name, topic_id, named) in [
        (Some("mine"), Uuid::ZERO, true),
        (Some("nothing"), Uuid::ZERO, true),
        // The response does not contain its name.
        (None, known, false),
        // A topic that the client may describe but not delete.
        (None, super::topic_id("team-a"), true),
    ] {
        let response = user.ask(6, &delete(name, topic_id)).await;
        let [result] = &response.responses[..] else {
            panic!("{response:?}");
        };
        assert_eq!(result.error_code, denied[0].code());
        assert_eq!(
            result.error_message.as_deref(),
            Some("Topic authorization failed.")
        );
        assert_eq!(result.name.is_some(), named, "{result:?}");
    }
    let unknown = delete(None, Uuid::from_u128(99));
    assert_eq!(
        errors(&mut user, 6, &unknown).await,
        [ErrorCode::UnknownTopicId]
    );
    assert_eq!(
        errors(&mut admin, 6, &delete(Some("mine"), Uuid::ZERO)).await,
        []
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_visible_to_authorized_clients() {
    let broker = broker().await;
    let mut user = broker.connect_from(USER, Endpoint::Broker).await;
    for (kind, name, denied, message) in [
        (
            ConfigResourceType::Topic,
            "team-a",
            ErrorCode::TopicAuthorizationFailed,
            "Topic authorization failed.",
        ),
        (
            ConfigResourceType::Group,
            "team-a",
            ErrorCode::GroupAuthorizationFailed,
            "Group authorization failed.",
        ),
        (
            ConfigResourceType::Broker,
            "1",
            ErrorCode::ClusterAuthorizationFailed,
            "Cluster authorization failed.",
        ),
    ] {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: kind.code(),
                resource_name: name.into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = user.ask(latest::<DescribeConfigsRequest>(), &request).await;
        let result = &answer.results[0];
        assert_eq!(result.error_code, denied.code(), "{name}");
        assert_eq!(result.error_message.as_deref(), Some(message));
        assert!(result.configs.is_empty(), "{result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acls_are_managed_by_authorized_clients_and_apply_at_once() {
    let broker = broker().await;
    let mut user = broker.connect_from(USER, Endpoint::Broker).await;
    let mut admin = broker.connect_from(ADMIN, Endpoint::Broker).await;
    let everything = DescribeAclsRequest {
        resource_type_filter: ResourceType::Any.code(),
        resource_name_filter: None,
        pattern_type_filter: PatternType::Any.code(),
        principal_filter: None,
        host_filter: None,
        operation: Operation::Any.code(),
        permission_type: PermissionType::Any.code(),
        ..Default::default()
    };
    let creation = CreateAclsRequest {
        creations: vec![AclCreation {
            resource_type: ResourceType::Topic.code(),
            resource_name: "team-".into(),
            resource_pattern_type: PatternType::Prefixed.code(),
            principal: "User:ANONYMOUS".into(),
            host: USER.to_string().into(),
            operation: Operation::Write.code(),
            permission_type: PermissionType::Allow.code(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let deletion = DeleteAclsRequest {
        filters: vec![DeleteAclsFilter {
            resource_type_filter: ResourceType::Topic.code(),
            resource_name_filter: Some("team-".into()),
            pattern_type_filter: PatternType::Prefixed.code(),
            principal_filter: None,
            host_filter: None,
            operation: Operation::Write.code(),
            permission_type: PermissionType::Any.code(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let denied = [ErrorCode::ClusterAuthorizationFailed];
    assert_eq!(errors(&mut user, 3, &everything).await, denied);
    assert_eq!(errors(&mut user, 3, &creation).await, denied);
    assert_eq!(errors(&mut user, 3, &deletion).await, denied);
    // An idempotent producer needs permission to write to some topic.
    let init = InitProducerIdRequest {
        transactional_id: None,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    assert_eq!(errors(&mut user, 4, &init).await, denied);
    assert_eq!(errors(&mut admin, 3, &creation).await, []);
    assert_eq!(errors(&mut user, 4, &init).await, []);
    let described = admin.ask(3, &everything).await;
    let acls: usize = described.resources.iter().map(|it| it.acls.len()).sum();
    assert_eq!((described.error_code, acls), (0, 4));
    let deleted = admin.ask(3, &deletion).await;
    assert_eq!(deleted.filter_results[0].matching_acls.len(), 1);
    assert_eq!(errors(&mut user, 4, &init).await, denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acl_deleted_after_a_restart_has_no_effect() {
    let broker = broker().await.restart().await;
    let mut user = broker.connect_from(USER, Endpoint::Broker).await;
    let mut admin = broker.connect_from(ADMIN, Endpoint::Broker).await;
    let named = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("team-a".into()),
            ..Default::default()
        }]),
        include_topic_authorized_operations: true,
        ..Default::default()
    };
    assert_eq!(errors(&mut user, 12, &named).await, []);
    let deletion = DeleteAclsRequest {
        filters: vec![DeleteAclsFilter {
            resource_type_filter: ResourceType::Topic.code(),
            resource_name_filter: Some("team-".into()),
            pattern_type_filter: PatternType::Prefixed.code(),
            principal_filter: None,
            host_filter: None,
            operation: Operation::Read.code(),
            permission_type: PermissionType::Any.code(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let deleted = admin.ask(3, &deletion).await;
    assert_eq!(deleted.filter_results[0].matching_acls.len(), 1);
    let denied = [ErrorCode::TopicAuthorizationFailed];
    assert_eq!(errors(&mut user, 12, &named).await, denied);
}

/// All requests that need a right over the cluster as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_operations_need_authorization() {
    let broker = broker().await;
    macro_rules! denied {
        ($endpoint:ident: $($request:ident),*) => { $(
            let mut user = broker.connect_from(USER, Endpoint::$endpoint).await;
            let found = errors(&mut user, latest::<$request>(), &$request::default()).await;
            assert_eq!(
                found.first(),
                Some(&ErrorCode::ClusterAuthorizationFailed),
                concat!(stringify!($request), " at a ", stringify!($endpoint), ": {:?}"),
                found
            );
        )* };
    }
    denied!(Broker: ElectLeadersRequest, AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest, UpdateFeaturesRequest, UnregisterBrokerRequest,
        DescribeQuorumRequest, DescribeClientQuotasRequest);
    let decisions = broker.broker().authorizer.decisions();
    assert!(decisions.denied >= 7, "{decisions:?}");
    // This API's own error code is not counted.
    let mut user = broker.connect_from(USER, Endpoint::Broker).await;
    let request = DescribeUserScramCredentialsRequest {
        users: Some(vec![Default::default()]),
        ..Default::default()
    };
    let answer = user
        .ask(latest::<DescribeUserScramCredentialsRequest>(), &request)
        .await;
    assert_eq!(
        answer.error_code,
        ErrorCode::ClusterAuthorizationFailed.code()
    );
    assert_eq!(answer.results[0].error_code, answer.error_code);
    // The message says which permission is missing.
    let missing = |request: &str| {
        let message =
            format!("Request {request} of User:ANONYMOUS from 127.0.0.1 needs ALTER permission.");
        Some(bytestring::ByteString::from(message))
    };
    let creation = CreateAclsRequest {
        creations: vec![Default::default()],
        ..Default::default()
    };
    let answer = user.ask(latest::<CreateAclsRequest>(), &creation).await;
    let created = &answer.results[0];
    assert_eq!(created.error_message, missing("CreateAcls"));
    // Java's client reads the error of each partition, and treats a response without partitions as
    // a fault of the broker.
    let reassignment = AlterPartitionReassignmentsRequest {
        topics: vec![ReassignableTopic {
            name: "team-a".into(),
            partitions: vec![Default::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let version = latest::<AlterPartitionReassignmentsRequest>();
    let answer = user.ask(version, &reassignment).await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error_code, answer.error_code);
    let message = missing("AlterPartitionReassignments");
    assert_eq!(partition.error_message, message);
    denied!(Controller: ElectLeadersRequest, AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest, UpdateFeaturesRequest, UnregisterBrokerRequest,
        DescribeQuorumRequest, FetchRequest, FetchSnapshotRequest, VoteRequest,
        BeginQuorumEpochRequest, EndQuorumEpochRequest, AlterPartitionRequest,
        BrokerHeartbeatRequest, BrokerRegistrationRequest, ControllerRegistrationRequest,
        AllocateProducerIdsRequest, AssignReplicasToDirsRequest, EnvelopeRequest);
    let mut user = broker.connect_from(USER, Endpoint::Controller).await;
    let describe = DescribeClusterRequest {
        endpoint_type: 2,
        ..Default::default()
    };
    let denied = [ErrorCode::ClusterAuthorizationFailed];
    assert_eq!(errors(&mut user, 1, &describe).await, denied);
    let quotas = AlterClientQuotasRequest {
        entries: vec![Default::default()],
        ..Default::default()
    };
    assert_eq!(errors(&mut user, 1, &quotas).await, denied);
}

/// A request in an envelope, as a broker forwards it for a client.
fn envelope<R: ApiRequest>(
    version: i16,
    request: &R,
    principal: Bytes,
    from: &[u8],
) -> EnvelopeRequest {
    let header = RequestHeader {
        request_api_key: R::API_KEY.code(),
        request_api_version: version,
        correlation_id: 5,
        ..Default::default()
    };
    let header_version = R::API_KEY.request_header_version(version);
    let mut data = BytesMut::new();
    data.extend_from_slice(&header.encode_to_bytes(header_version).expect("a header"));
    data.extend_from_slice(&request.encode_to_bytes(version).expect("a request"));
    EnvelopeRequest {
        request_data: data.freeze(),
        request_principal: Some(principal),
        client_host_address: Bytes::copy_from_slice(from),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_request_has_the_permissions_of_its_client() {
    let broker = broker().await;
    let mut node = broker.connect_from(ADMIN, Endpoint::Controller).await;
    let principal = |text: &str| Principal::parse(text).unwrap().to_bytes().unwrap();
    let anonymous = principal("User:ANONYMOUS");
    let request = creation("forwarded", 1, 1);
    for (principal, from, code) in [
        (
            anonymous.clone(),
            [127, 0, 0, 1],
            ErrorCode::TopicAuthorizationFailed,
        ),
        (
            principal("User:mallory"),
            [127, 0, 0, 2],
            ErrorCode::TopicAuthorizationFailed,
        ),
        (anonymous.clone(), [127, 0, 0, 2], ErrorCode::None),
        (
            principal("User:admin"),
            [10, 0, 0, 1],
            ErrorCode::TopicAlreadyExists,
        ),
    ] {
        let answer = node.ask(0, &envelope(7, &request, principal, &from)).await;
        assert_eq!(answer.error_code, 0);
        let mut reader = Reader::new(answer.response_data.expect("an answer"));
        let header_version = ApiKey::CreateTopics.response_header_version(7);
        ResponseHeader::decode(&mut reader, header_version).expect("a header");
        let response = CreateTopicsResponse::decode(&mut reader, 7).expect("a response");
        assert_eq!(response.topics[0].error_code, code.code(), "{from:?}");
    }
    for (principal, from, code) in [
        (
            Bytes::from_static(&[0, 9]),
            &[127, 0, 0, 2][..],
            ErrorCode::PrincipalDeserializationFailure,
        ),
        (
            Bytes::new(),
            &[127, 0, 0, 2],
            ErrorCode::PrincipalDeserializationFailure,
        ),
        (anonymous, &[127, 0, 0], ErrorCode::InvalidRequest),
    ] {
        let answer = node.ask(0, &envelope(7, &request, principal, from)).await;
        assert_eq!(answer.error_code, code.code());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_authorizer_there_are_no_acls() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect_from(USER, Endpoint::Broker).await;
    let disabled = [ErrorCode::SecurityDisabled];
    let describe = DescribeAclsRequest {
        resource_type_filter: ResourceType::Any.code(),
        pattern_type_filter: PatternType::Any.code(),
        operation: Operation::Any.code(),
        permission_type: PermissionType::Any.code(),
        ..Default::default()
    };
    assert_eq!(errors(&mut client, 3, &describe).await, disabled);
    let create = CreateAclsRequest {
        creations: vec![Default::default()],
        ..Default::default()
    };
    assert_eq!(errors(&mut client, 3, &create).await, disabled);
}
