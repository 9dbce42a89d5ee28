//! Delegation tokens: rejected for unauthenticated clients, and decided by the controller for other
//! clients. The requests of these tests are sent in envelopes, with the principals that a broker
//! has authenticated.

use bytes::{Bytes, BytesMut};
use ottla_protocol::messages::*;
use ottla_protocol::{ApiRequest, Message, Reader};
use ottla_security::Principal;
use ottla_types::ErrorCode;

use super::memory::fill_heap;
use super::{Client, TestBroker};

/// The controller's response to a request that a broker forwards for this principal.
async fn forwarded<R: ApiRequest>(
    broker: &TestBroker,
    principal: &str,
    version: i16,
    request: &R,
) -> R::Response {
    let mut node = Client::connect(broker.controller_address()).await;
    let header = RequestHeader {
        request_api_key: R::API_KEY.code(),
        request_api_version: version,
        ..Default::default()
    };
    let header_version = R::API_KEY.request_header_version(version);
    let mut data = BytesMut::new();
    data.extend_from_slice(&header.encode_to_bytes(header_version).expect("a header"));
    data.extend_from_slice(&request.encode_to_bytes(version).expect("a request"));
    let principal = Principal::parse(principal).expect("a principal");
    let envelope = EnvelopeRequest {
        request_data: data.freeze(),
        request_principal: Some(principal.to_bytes().expect("a short name")),
        client_host_address: Bytes::from_static(&[10, 0, 0, 1]),
        ..Default::default()
    };
    let answer = node.ask(0, &envelope).await;
    assert_eq!(answer.error_code, 0);
    let mut reader = Reader::new(answer.response_data.expect("an answer"));
    let header_version = R::API_KEY.response_header_version(version);
    ResponseHeader::decode(&mut reader, header_version).expect("a header");
    R::Response::decode(&mut reader, version).expect("a response")
}

#[tokio::test]
async fn a_token_is_valid_from_its_creation_to_its_expiry() {
    let settings = [
        ("delegation.token.secret.key", "secret"),
        ("delegation.token.expiry.check.interval.ms", "100"),
    ];
    let broker = TestBroker::start_with(&settings).await;
    let create = CreateDelegationTokenRequest {
        max_lifetime_ms: -1,
        ..Default::default()
    };
    let created = forwarded(&broker, "User:alice", 3, &create).await;
    assert_eq!(created.error_code, 0);
    assert_eq!(&*created.principal_name, "alice");
    assert_eq!(&*created.token_requester_principal_name, "alice");
    assert_eq!(created.hmac.len(), 64);
    // Older versions do not contain the requester.
    let older = forwarded(&broker, "User:alice", 2, &create).await;
    assert_eq!(
        (older.error_code, &*older.token_requester_principal_name),
        (0, "")
    );
    let count = || {
        broker
            .broker()
            .metadata()
            .kept
            .delegation_tokens
            .iter()
            .count()
    };
    assert_eq!(count(), 2);
    let renew = RenewDelegationTokenRequest {
        hmac: created.hmac.clone(),
        renew_period_ms: -1,
        ..Default::default()
    };
    let mallory = forwarded(&broker, "User:mallory", 2, &renew).await;
    let mismatch = ErrorCode::DelegationTokenOwnerMismatch;
    assert_eq!(ErrorCode::from_code(mallory.error_code), mismatch);
    let alice = forwarded(&broker, "User:alice", 2, &renew).await;
    assert_eq!(alice.error_code, 0);
    let expire = |hmac: &Bytes, expiry_time_period_ms| ExpireDelegationTokenRequest {
        hmac: hmac.clone(),
        expiry_time_period_ms,
        ..Default::default()
    };
    let ended = forwarded(&broker, "User:alice", 2, &expire(&created.hmac, -1)).await;
    assert_eq!(ended.error_code, 0);
    assert_eq!(count(), 1);
    // The other token is removed when it expires.
    let soon = forwarded(&broker, "User:alice", 2, &expire(&older.hmac, 1)).await;
    assert_eq!(soon.error_code, 0);
    for _ in 0..600 {
        if count() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the token is still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_refuses_tokens() {
    let settings = [("delegation.token.secret.key", "secret")];
    let broker = TestBroker::start_with(&settings).await;
    fill_heap(&broker).await;
    let create = CreateDelegationTokenRequest {
        max_lifetime_ms: -1,
        ..Default::default()
    };
    let refused = forwarded(&broker, "User:alice", 3, &create).await;
    let later = ErrorCode::CoordinatorLoadInProgress;
    assert_eq!(ErrorCode::from_code(refused.error_code), later);
}

#[tokio::test]
async fn unauthenticated_clients_get_no_token() {
    let settings = [("delegation.token.secret.key", "secret")];
    let broker = TestBroker::start_with(&settings).await;
    let mut client = broker.connect().await;
    let not_allowed = ErrorCode::DelegationTokenRequestNotAllowed.code();
    let created = client
        .ask(3, &CreateDelegationTokenRequest::default())
        .await;
    assert_eq!(created.error_code, not_allowed);
    assert_eq!(created.expiry_timestamp_ms, -1);
    let renewed = client.ask(2, &RenewDelegationTokenRequest::default()).await;
    assert_eq!(renewed.error_code, not_allowed);
    let expired = client
        .ask(2, &ExpireDelegationTokenRequest::default())
        .await;
    assert_eq!(expired.error_code, not_allowed);
    let described = client
        .ask(3, &DescribeDelegationTokenRequest::default())
        .await;
    assert_eq!(described.error_code, not_allowed);
}
