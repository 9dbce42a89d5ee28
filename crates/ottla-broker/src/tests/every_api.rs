//! Every advertised API in every version, with bodies of all kinds: a readable request gets a
//! response in its version, any other ends the connection, and the broker continues to work.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ottla_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use ottla_protocol::sample::{AnyMessage, Sampler, Style, request_and_response};
use ottla_protocol::{ApiKey, Encoder, Message, Reader};
use tokio::io::AsyncWriteExt;

use super::TestBroker;
use super::client::{Client, frame};
use crate::rights::{Denied, rights};
use crate::{Endpoint, served_apis};

/// How long a test waits for a response that should come at once.
const PATIENCE: Duration = Duration::from_secs(60);
const CORRELATION_ID: i32 = 7;
/// Of the request that follows each tested one, to check that the connection continues.
const NEXT_CORRELATION_ID: i32 = 8;

struct Api {
    key: ApiKey,
    request: AnyMessage,
    response: AnyMessage,
}

fn advertised(endpoint: Endpoint) -> Vec<(Api, std::ops::RangeInclusive<i16>)> {
    let served = served_apis(endpoint).into_iter();
    served
        .map(|(key, versions)| {
            let (request, response) = request_and_response(key).expect("it is in the schemas");
            let api = Api {
                key,
                request,
                response,
            };
            // ApiVersions advertises 0 for Produce, which starts at 3.
            (api, versions)
        })
        .collect()
}

fn framed(key: ApiKey, version: i16, body: &[u8]) -> Bytes {
    let header = RequestHeader {
        request_api_key: key.code(),
        request_api_version: version,
        correlation_id: CORRELATION_ID,
        client_id: Some("test".into()),
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    header
        .encode(&mut encoder, key.request_header_version(version))
        .expect("a header");
    let header = encoder.finish().into_bytes();
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&((header.len() + body.len()) as u32).to_be_bytes());
    frame.extend_from_slice(&header);
    frame.extend_from_slice(body);
    frame.freeze()
}

/// The state of the connection after a request.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    Answered,
    /// The connection continues without a response.
    Unanswered,
    Closed,
}

/// Sends one request on its own connection, followed by a request that is always answered.
async fn outcome_of(
    broker: &TestBroker,
    endpoint: Endpoint,
    api: &Api,
    version: i16,
    body: &[u8],
) -> Outcome {
    let shown = &body[..body.len().min(1_000)];
    let what = format!("{} in version {version}: {shown:?}", api.key);
    let mut client = Client::connect(broker.address(endpoint)).await;
    let next = frame(0, &ApiVersionsRequest::default(), NEXT_CORRELATION_ID);
    let bytes = [framed(api.key, version, body), next].concat();
    // The broker may close the connection at the first request while the second is being sent.
    let _ = client.stream.write_all(&bytes).await;
    let mut outcome = Outcome::Unanswered;
    loop {
        let received = tokio::time::timeout(PATIENCE, client.receive_frame()).await;
        let Some(received) = received.unwrap_or_else(|_| panic!("no answer to {what}")) else {
            assert_eq!(
                outcome,
                Outcome::Unanswered,
                "closed after an answer: {what}"
            );
            return Outcome::Closed;
        };
        let correlation_id = i32::from_be_bytes(*received.first_chunk().expect("a header"));
        if correlation_id == NEXT_CORRELATION_ID {
            return outcome;
        }
        assert_eq!(correlation_id, CORRELATION_ID, "{what}");
        let mut reader = Reader::new(received.clone());
        let header_version = api.key.response_header_version(version);
        ResponseHeader::decode(&mut reader, header_version).expect("a header");
        let body = received.slice(received.len() - reader.remaining()..);
        let response = (api.response.read)(body, version);
        let response = response.unwrap_or_else(|error| panic!("{error} in the answer to {what}"));
        assert_eq!(response.remaining, 0, "bytes after the answer to {what}");
        outcome = Outcome::Answered;
    }
}

/// Whether the API removes the broker itself from its cluster if the request names it.
fn ends_the_broker(key: ApiKey) -> bool {
    key == ApiKey::UnregisterBroker
}

/// Whether a request may remain unanswered: a Produce with acks 0. It closes the connection on an
/// error.
fn may_be_silent(key: ApiKey) -> bool {
    key == ApiKey::Produce
}

/// A broker that offers every API: client telemetry is consumed.
async fn broker_of_every_api(settings: &[(&str, &str)]) -> TestBroker {
    let mut all = vec![("ottla.http.listener", "127.0.0.1:0")];
    all.extend_from_slice(settings);
    TestBroker::start_with(&all).await
}

async fn is_answered_in(styles: &[(Style, u64)], endpoint: Endpoint) {
    let broker = broker_of_every_api(&[("group.initial.rebalance.delay.ms", "0")]).await;
    let (mut answered, mut wrong) = (0, Vec::<String>::new());
    for (api, versions) in advertised(endpoint) {
        if ends_the_broker(api.key) {
            continue;
        }
        for version in versions {
            for &(style, seed) in styles {
                let sampler = Sampler::new(seed + version as u64, style);
                let (body, text) = (api.request.sample)(sampler, version).expect("a request");
                match outcome_of(&broker, endpoint, &api, version, &body).await {
                    Outcome::Answered => answered += 1,
                    Outcome::Unanswered | Outcome::Closed if may_be_silent(api.key) => {}
                    other => wrong.push(format!("{} {version} is {other:?}: {text}", api.key)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(answered > 50, "only {answered} were answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_are_answered_in_every_version() {
    for endpoint in [Endpoint::Broker, Endpoint::Controller] {
        is_answered_in(&[(Style::Bare, 1)], endpoint).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plausible_requests_are_answered_in_every_version() {
    let styles: Vec<_> = (0..8).map(|seed| (Style::Plausible, 100 * seed)).collect();
    is_answered_in(&styles, Endpoint::Broker).await;
    is_answered_in(&styles[..3], Endpoint::Controller).await;
}

/// Requests that need a right for the request as a whole are denied in every version, whatever they
/// contain, and nothing else is decided for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_rights_is_denied_whole_requests_in_every_version() {
    let broker = broker_of_every_api(&[
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:admin"),
    ])
    .await;
    let authorizer = &broker.broker().authorizer;
    let (mut denied, mut wrong) = (0, Vec::<String>::new());
    for endpoint in [Endpoint::Broker, Endpoint::Controller] {
        for (api, versions) in advertised(endpoint) {
            let rights = rights(api.key, endpoint).unwrap_or_default();
            if !rights.iter().any(|right| right.denied == Denied::Request) {
                continue;
            }
            for version in versions {
                for (style, seed) in [(Style::Bare, 1), (Style::Plausible, 100)] {
                    let sampler = Sampler::new(seed + version as u64, style);
                    let (body, text) = (api.request.sample)(sampler, version).expect("a request");
                    let before = authorizer.decisions();
                    let outcome = outcome_of(&broker, endpoint, &api, version, &body).await;
                    let after = authorizer.decisions();
                    let decided = (after.denied - before.denied, after.allowed - before.allowed);
                    match (outcome, decided) {
                        (Outcome::Answered, (1, 0)) => denied += 1,
                        other => wrong.push(format!(
                            "{} {version} at a {endpoint:?} is {other:?}: {text}",
                            api.key
                        )),
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(denied > 100, "only {denied} were denied");
}

/// A request truncated at any position is either complete without the rest, or ends the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_requests_close_the_connection() {
    let broker = broker_of_every_api(&[]).await;
    let mut closed = 0;
    for (api, versions) in advertised(Endpoint::Broker) {
        if ends_the_broker(api.key) {
            continue;
        }
        let version = *versions.end();
        let sampler = Sampler::new(4, Style::Plausible);
        let (body, _) = (api.request.sample)(sampler, version).expect("a request");
        for length in 0..body.len() {
            let cut = body.slice(..length);
            let is_request = (api.request.decode)(Reader::new(cut.clone()), version);
            let outcome = outcome_of(&broker, Endpoint::Broker, &api, version, &cut).await;
            match outcome {
                Outcome::Closed if !is_request => closed += 1,
                Outcome::Answered if is_request => {}
                _ if may_be_silent(api.key) && is_request => {}
                other => panic!("{} {version} cut to {length} bytes is {other:?}", api.key),
            }
        }
    }
    assert!(closed > 500, "only {closed} were closed");
}

/// Extreme numbers, long strings that name nothing, nulls, and tagged fields that are not in the
/// schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absurd_requests_are_answered_in_every_version() {
    let styles: Vec<_> = (0..3)
        .flat_map(|seed| [(Style::Mixed, 10 * seed), (Style::Extreme, 10 * seed)])
        .collect();
    is_answered_in(&styles, Endpoint::Controller).await;
    let broker = broker_of_every_api(&[]).await;
    let mut wrong = Vec::new();
    for (api, versions) in advertised(Endpoint::Broker) {
        // These may wait as long as they request, which is up to 24 days.
        let may_wait = [
            ApiKey::Fetch,
            ApiKey::JoinGroup,
            ApiKey::SyncGroup,
            ApiKey::ShareFetch,
        ];
        let may_wait = may_wait.contains(&api.key);
        if ends_the_broker(api.key) || may_wait {
            continue;
        }
        for version in versions {
            for &(style, seed) in &styles {
                let sampler = Sampler::new(seed + version as u64, style);
                let (body, text) = (api.request.sample)(sampler, version).expect("a request");
                match outcome_of(&broker, Endpoint::Broker, &api, version, &body).await {
                    Outcome::Answered => {}
                    _ if may_be_silent(api.key) => {}
                    other => wrong.push(format!("{} {version} is {other:?}: {text}", api.key)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Requests that name thousands of things, or one thing thousands of times, take linear time. They
/// are answered, or rejected if their structs are much larger than their bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_many_elements_are_answered_in_time() {
    const COUNT: usize = 20_000;
    let broker = broker_of_every_api(&[("group.initial.rebalance.delay.ms", "0")]).await;
    let mut asked = 0;
    for endpoint in [Endpoint::Broker, Endpoint::Controller] {
        for (api, versions) in advertised(endpoint) {
            if ends_the_broker(api.key) {
                continue;
            }
            for (within, same) in [(0, false), (0, true), (1, false), (1, true)] {
                let count = COUNT;
                let style = Style::Many {
                    count,
                    within,
                    same,
                };
                let version = *versions.end();
                let sampler = Sampler::new(0, style);
                let (body, _) = (api.request.sample)(sampler, version).expect("a request");
                if body.len() < COUNT {
                    continue;
                }
                // Fails if it is not answered in time.
                outcome_of(&broker, endpoint, &api, version, &body).await;
                println!("{endpoint:?} {} {within} {same}", api.key);
                asked += 1;
            }
        }
    }
    assert!(asked > 100, "only {asked} were large");
}
