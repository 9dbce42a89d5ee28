//! Sends generated requests of every API and version to a broker and prints the outcomes, one line
//! of JSON per API. The requests are the same in every run, so the lines of two brokers can be
//! compared.
//!
//! `wire_script HOST:PORT`. An outcome is the sorted set of error codes in the response; `closed`
//! and `silent` mean no response. Further contents are compared by the client scripts.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::*;
use ottla_protocol::sample::{AnyMessage, Sampler, Style, request_and_response};
use ottla_protocol::{ApiKey, ApiRequest, Encoder, Message, Reader};

/// Requests per version.
const SAMPLES: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(20);
/// The topics that the generated requests name. They are created first, so that no request
/// auto-creates one.
const TOPICS: [&str; 6] = [
    "wire-a",
    "wire-b",
    "range",
    "consumer",
    "retention.ms",
    "3600000",
];
const GROUP: &str = "wire-group";

/// Excluded requests: the ones that Ottla does not serve yet (COMPATIBILITY.md gives the reasons),
/// and the ones that would take the broker out of its cluster.
fn is_left_out(key: ApiKey) -> bool {
    use ApiKey::*;
    matches!(
        key,
        AddPartitionsToTxn
            | AddOffsetsToTxn
            | EndTxn
            | WriteTxnMarkers
            | TxnOffsetCommit
            | AlterReplicaLogDirs
            | ConsumerGroupHeartbeat
            | ConsumerGroupDescribe
            | GetTelemetrySubscriptions
            | PushTelemetry
            | ShareGroupHeartbeat
            | ShareGroupDescribe
            | ShareFetch
            | ShareAcknowledge
            | AddRaftVoter
            | RemoveRaftVoter
            | InitializeShareGroupState
            | ReadShareGroupState
            | WriteShareGroupState
            | DeleteShareGroupState
            | ReadShareGroupStateSummary
            | StreamsGroupHeartbeat
            | StreamsGroupDescribe
            | StreamsGroupTopologyDescriptionUpdate
            | DescribeShareGroupOffsets
            | AlterShareGroupOffsets
            | DeleteShareGroupOffsets
            | UnregisterBroker
            | UnregisterController
    )
}

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: wire_script HOST:PORT");
        return ExitCode::FAILURE;
    };
    match run(&address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(address: &str) -> Result<(), Box<dyn Error>> {
    prepare(address)?;
    let mut keys: Vec<ApiKey> = ApiKey::ALL
        .iter()
        .copied()
        .filter(|key| key.on_broker() && !key.stable_versions().is_empty() && !is_left_out(*key))
        .collect();
    // After all requests that need the topics.
    keys.sort_by_key(|key| (*key == ApiKey::DeleteTopics, *key));
    for key in keys {
        let (request, response) = request_and_response(key).ok_or("no schema")?;
        let versions: Result<Vec<String>, Box<dyn Error>> = key
            .stable_versions()
            .map(|version| {
                let outcomes: Result<Vec<String>, Box<dyn Error>> = (0..SAMPLES)
                    .map(|sample| {
                        let seed = 1000 * i64::from(version) as u64 + sample;
                        let sampler = Sampler::new(seed, Style::Plausible);
                        let (body, _) = (request.sample)(sampler, version)?;
                        outcome(address, key, version, &body, &response)
                    })
                    .collect();
                Ok(format!("\"{version}\":[{}]", outcomes?.join(",")))
            })
            .collect();
        println!(
            "{{\"step\":\"{}\",\"outcome\":{{{}}}}}",
            key.name(),
            versions?.join(",")
        );
    }
    Ok(())
}

/// Creates the topics and triggers the creation of the group coordinator.
fn prepare(address: &str) -> Result<(), Box<dyn Error>> {
    let topics = TOPICS.map(|name| CreatableTopic {
        name: name.into(),
        num_partitions: 2,
        replication_factor: 1,
        ..Default::default()
    });
    let create = CreateTopicsRequest {
        topics: topics.to_vec(),
        timeout_ms: 10_000,
        ..Default::default()
    };
    ask(address, 5, &create)?;
    let find = FindCoordinatorRequest {
        key: GROUP.into(),
        ..Default::default()
    };
    for _ in 0..200 {
        if ask(address, 3, &find)?.error_code == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("no coordinator was found".into())
}

fn ask<R: ApiRequest>(
    address: &str,
    version: i16,
    request: &R,
) -> Result<R::Response, Box<dyn Error>> {
    let body = request.encode_to_bytes(version)?;
    let mut stream = connect(address)?;
    stream.write_all(&framed(R::API_KEY, version, 1, &body)?)?;
    let frame = receive(&mut stream)?.ok_or("closed")?;
    let mut reader = Reader::new(frame);
    ResponseHeader::decode(&mut reader, R::API_KEY.response_header_version(version))?;
    Ok(R::Response::decode(&mut reader, version)?)
}

fn connect(address: &str) -> Result<TcpStream, Box<dyn Error>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The broker's reaction to a request on a separate connection, followed by a request that is
/// always answered.
fn outcome(
    address: &str,
    key: ApiKey,
    version: i16,
    body: &[u8],
    response: &AnyMessage,
) -> Result<String, Box<dyn Error>> {
    let mut stream = connect(address)?;
    let next = ApiVersionsRequest::default().encode_to_bytes(0)?;
    let mut bytes = framed(key, version, 1, body)?;
    bytes.extend(framed(ApiKey::ApiVersions, 0, 2, &next)?);
    // The broker may have closed the connection at the first request.
    let _ = stream.write_all(&bytes);
    let frame = match receive(&mut stream) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Ok("\"closed\"".to_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Ok("\"no answer\"".to_owned());
        }
        Err(_) => return Ok("\"closed\"".to_owned()),
    };
    if frame.get(..4) == Some(&[0, 0, 0, 2]) {
        return Ok("\"silent\"".to_owned());
    }
    let mut reader = Reader::new(frame.clone());
    ResponseHeader::decode(&mut reader, key.response_header_version(version))?;
    let answer = (response.read)(frame.slice(frame.len() - reader.remaining()..), version)?;
    let codes: BTreeSet<i32> = answer
        .text
        .split("errorcode:")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-');
            rest[..end.unwrap_or(rest.len())].parse().ok()
        })
        .collect();
    let codes: Vec<String> = codes.iter().map(i32::to_string).collect();
    Ok(format!("\"{}\"", codes.join(" ")))
}

fn framed(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &[u8],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let header = RequestHeader {
        request_api_key: key.code(),
        request_api_version: version,
        correlation_id,
        client_id: Some("wire".into()),
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    header.encode(&mut encoder, key.request_header_version(version))?;
    let header = encoder.finish().into_bytes();
    let mut frame = ((header.len() + body.len()) as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&header);
    frame.extend_from_slice(body);
    Ok(frame)
}

/// The next frame; `None` if the connection was closed.
fn receive(stream: &mut TcpStream) -> std::io::Result<Option<Bytes>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(Some(frame.into()))
}
