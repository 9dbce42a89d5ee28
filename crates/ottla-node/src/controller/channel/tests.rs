//! The channel against controllers that answer as each test defines.

use ottla_sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::Arc;

use ottla_protocol::decode_request_header;
use ottla_protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, EnvelopeResponse,
    UnregisterBrokerRequest, UnregisterBrokerResponse,
};

use super::*;
use ottla_testkit::peer::{ReceivedRequest, broker_only_config, client_context, peer};

const SERVED: &[(ApiKey, i16)] = &[(ApiKey::AllocateProducerIds, 0), (ApiKey::Envelope, 0)];

/// The port of the leader. Its id is the port as well; 0 means that there is no leader.
fn channel(leader: &Arc<AtomicU16>) -> ControllerChannel {
    let leader = Arc::clone(leader);
    let who_leads = move || {
        let port = leader.load(Ordering::Relaxed);
        match port {
            0 => Err("no node leads".to_owned()),
            _ => Ok(ActiveController {
                id: BrokerId(port.into()),
                host: ByteString::from_static("127.0.0.1"),
                port,
            }),
        }
    };
    ControllerChannel::new(
        &broker_only_config(&[]),
        &ottla_net::PeerSecurity::default(),
        Box::new(who_leads),
    )
}

fn allocated(asked: &ReceivedRequest, producer_id_start: i64) -> Option<Vec<Bytes>> {
    Some(vec![asked.answer(&AllocateProducerIdsResponse {
        producer_id_start,
        producer_id_len: 1000,
        ..Default::default()
    })])
}

#[tokio::test]
async fn a_request_finds_the_leader_through_an_election_and_a_lost_connection() {
    // The second controller drops its first connection without an answer.
    let tries = AtomicUsize::new(0);
    let second = peer(SERVED, move |asked| {
        match tries.fetch_add(1, Ordering::Relaxed) {
            0 => None,
            _ => allocated(&asked, 2_000),
        }
    });
    let second = second.await;
    let leader = Arc::<AtomicU16>::default();
    // The first is no longer the leader; when it says so, the second is.
    let next = Arc::clone(&leader);
    let first = peer(SERVED, move |asked: ReceivedRequest| {
        next.store(second, Ordering::Relaxed);
        Some(vec![asked.answer(&AllocateProducerIdsResponse {
            error_code: ErrorCode::NotController.code(),
            ..Default::default()
        })])
    });
    let first = first.await;
    let channel = channel(&leader);
    let request = AllocateProducerIdsRequest::default();
    let elected = async {
        sleep(Duration::from_millis(20)).await;
        leader.store(first, Ordering::Relaxed);
    };
    let (answer, ()) = tokio::join!(channel.send(&request), elected);
    assert_eq!(answer.unwrap().producer_id_start, 2_000);
    assert_eq!(*channel.forwarding.trouble.lock(), None);
}

#[tokio::test]
async fn a_request_leaves_a_silent_controller_when_another_leads() {
    let leader = Arc::<AtomicU16>::default();
    let second = peer(SERVED, |asked| allocated(&asked, 2_000)).await;
    // The first hangs with the request in flight, and another node is elected.
    let next = Arc::clone(&leader);
    let first = peer(SERVED, move |_| {
        next.store(second, Ordering::Relaxed);
        Some(Vec::new())
    });
    leader.store(first.await, Ordering::Relaxed);
    let channel = channel(&leader);
    let request = AllocateProducerIdsRequest::default();
    let answer = ottla_sync::time::timeout(Duration::from_secs(20), channel.send(&request)).await;
    let answer = answer.expect("the first is not waited for any more");
    assert_eq!(answer.unwrap().producer_id_start, 2_000);
}

#[tokio::test]
async fn an_unanswered_heartbeat_ends_after_its_interval() {
    let channel = channel(&Arc::default());
    let begun = ottla_sync::time::now();
    let heartbeat = ottla_protocol::messages::BrokerHeartbeatRequest::default();
    let answer = channel.send(&heartbeat).await;
    assert_eq!(answer.unwrap_err(), ErrorCode::RequestTimedOut);
    assert!(ottla_sync::time::now() - begun >= Duration::from_millis(100));
    let trouble = channel.trouble().unwrap();
    assert_eq!(trouble, "no node leads");
}

#[tokio::test]
async fn the_wait_for_a_silent_controller_ends_with_the_retries() {
    let silent = peer(SERVED, |_| Some(Vec::new())).await;
    let mut channel = channel(&Arc::new(AtomicU16::new(silent)));
    let socket_timeout = channel.forwarding.settings.request_timeout;
    assert!(socket_timeout > Duration::from_secs(20));
    channel.forwarding.retry_timeout = Some(Duration::from_millis(300));
    let request = AllocateProducerIdsRequest::default();
    let answer = ottla_sync::time::timeout(Duration::from_secs(20), channel.send(&request)).await;
    let answer = answer.expect("the attempt ends with the request");
    assert_eq!(answer.unwrap_err(), ErrorCode::RequestTimedOut);
}

#[tokio::test]
async fn an_unsupported_request_is_not_retried() {
    let port = peer(SERVED, |_| panic!("it must not be asked")).await;
    let channel = channel(&Arc::new(AtomicU16::new(port)));
    let answer = channel.send(&UnregisterBrokerRequest::default()).await;
    assert_eq!(answer.unwrap_err(), ErrorCode::UnsupportedVersion);
}

#[tokio::test]
async fn an_envelope_carries_the_principal_and_address_of_the_client() {
    let react = |asked: ReceivedRequest| {
        let envelope: EnvelopeRequest = asked.request();
        assert_eq!(&envelope.client_host_address[..], [10, 0, 0, 9]);
        // The result of `DefaultKafkaPrincipalBuilder.serialize` for `User:ANONYMOUS`.
        let principal = b"\0\0\x05User\x0aANONYMOUS\0\0";
        assert_eq!(envelope.request_principal.as_deref(), Some(&principal[..]));
        let mut reader = Reader::new(envelope.request_data);
        let (api, header) = decode_request_header(&mut reader).unwrap();
        assert_eq!((api, header.correlation_id), (ApiKey::UnregisterBroker, 77));
        assert_eq!(header.client_id.as_deref(), Some("admin"));
        let request = UnregisterBrokerRequest::decode(&mut reader, 0).unwrap();
        assert_eq!(request.broker_id, 3);
        // The client's response, inside the envelope's response.
        let inner = ReceivedRequest::of(api, header, reader).answer(&UnregisterBrokerResponse {
            error_code: ErrorCode::BrokerIdNotRegistered.code(),
            error_message: Some(ByteString::from_static("no broker 3")),
            ..Default::default()
        });
        Some(vec![asked.answer(&EnvelopeResponse {
            response_data: Some(inner.slice(4..)),
            ..Default::default()
        })])
    };
    let port = peer(SERVED, react).await;
    let channel = channel(&Arc::new(AtomicU16::new(port)));
    let request = UnregisterBrokerRequest {
        broker_id: 3,
        ..Default::default()
    };
    let response = channel
        .forward(&client_context(ApiKey::UnregisterBroker, 0), &request)
        .await
        .unwrap();
    assert_eq!(response.error_message.as_deref(), Some("no broker 3"));
}

#[tokio::test]
async fn a_refused_envelope_is_not_reported_as_an_error_of_the_client() {
    for (refused, expected) in [
        (
            ErrorCode::ClusterAuthorizationFailed,
            ErrorCode::UnknownServerError,
        ),
        (ErrorCode::UnsupportedVersion, ErrorCode::UnsupportedVersion),
    ] {
        let react = move |asked: ReceivedRequest| {
            Some(vec![asked.answer(&EnvelopeResponse {
                error_code: refused.code(),
                ..Default::default()
            })])
        };
        let port = peer(SERVED, react).await;
        let channel = channel(&Arc::new(AtomicU16::new(port)));
        let request = UnregisterBrokerRequest::default();
        let answer = channel
            .forward(&client_context(ApiKey::UnregisterBroker, 0), &request)
            .await;
        assert_eq!(answer.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn the_apis_of_the_leader_are_known_after_connecting() {
    let port = peer(SERVED, |asked| allocated(&asked, 1_000)).await;
    let leader = Arc::new(AtomicU16::new(port));
    let channel = channel(&leader);
    assert_eq!(channel.versions_at_leader(ApiKey::CreateTopics), None);
    let request = AllocateProducerIdsRequest::default();
    channel.send(&request).await.unwrap();
    let versions = channel.versions_at_leader(ApiKey::AllocateProducerIds);
    assert_eq!(versions, Some(0..=0));
    let none = channel.versions_at_leader(ApiKey::CreateTopics).unwrap();
    assert!(none.is_empty());
    // The new leader has not sent its API versions yet.
    leader.store(1, Ordering::Relaxed);
    let of_another = channel.versions_at_leader(ApiKey::AllocateProducerIds);
    assert_eq!(of_another, None);
    // If this node is the leader, nothing is sent.
    leader.store(4, Ordering::Relaxed);
    let here = channel.send(&request).await;
    assert_eq!(here.unwrap_err(), ErrorCode::NotController);
}
