use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
use ottla_types::Timestamp;

use super::*;

/// A registry that answers these paths, and its requests as they come.
fn registry(answers: &[(&'static str, u16, &str)]) -> (Registry, Receiver<String>) {
    registry_with(answers, &[])
}

fn registry_with(
    answers: &[(&'static str, u16, &str)],
    settings: &[(&str, &str)],
) -> (Registry, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api/", listener.local_addr().unwrap());
    let answers: BTreeMap<String, (u16, String)> = answers
        .iter()
        .map(|(path, status, body)| (format!("/api{path}"), (*status, (*body).to_owned())))
        .collect();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
                    _ => break,
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or("").to_owned();
            let missing = (
                404,
                r#"{"error_code":40403,"message":"not found"}"#.to_owned(),
            );
            let (status, body) = answers.get(&path).cloned().unwrap_or(missing);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = sender.send(request);
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    let settings = settings.iter();
    let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let config = RegistryConfig::new(&url, &settings.collect()).unwrap();
    (Registry::new(config, Budget::default()), requests)
}

fn paths(requests: &Receiver<String>) -> Vec<String> {
    let requests = requests.try_iter();
    requests
        .map(|it| it.split(' ').nth(1).unwrap_or("").to_owned())
        .collect()
}

async fn decode(
    registry: &Registry,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader],
) -> DecodedRecord {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(0), key, value, headers);
    let batch = builder.build();
    let records = batch.records(1 << 20).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    registry.decode("orders", &record).await
}

fn framed(id: u8, data: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 0, id][..], data].concat()
}

/// What `value` of a record with this value is decoded to.
async fn value(registry: &Registry, value: &[u8]) -> Decoded {
    decode(registry, None, Some(value), &[])
        .await
        .value
        .unwrap()
}

const AVRO: &str = r#"{"schema": "{\"type\": \"record\", \"name\": \"shop.Order\", \"fields\": [{\"name\": \"to\", \"type\": \"Address\"}]}",
    "references": [{"name": "shop.Address", "subject": "the address", "version": 3}]}"#;
const ADDRESS: &str = r#"{"subject": "the address", "version": 3, "id": 1,
    "schema": "{\"type\": \"record\", \"name\": \"shop.Address\", \"fields\": [{\"name\": \"city\", \"type\": \"string\"}]}"}"#;

#[tokio::test]
async fn avro_with_a_reference_is_read_once() {
    let (registry, requests) = registry(&[
        ("/schemas/ids/7", 200, AVRO),
        (
            "/schemas/ids/7/versions",
            200,
            r#"[{"subject": "other", "version": 1}, {"subject": "orders-value", "version": 2}]"#,
        ),
        ("/subjects/the%20address/versions/3", 200, ADDRESS),
    ]);
    for _ in 0..3 {
        let decoded = value(&registry, &framed(7, b"\x06Ulm")).await;
        assert_eq!(decoded.kind, Some(Kind::Avro));
        assert_eq!(decoded.subject.as_deref(), Some("orders-value"));
        assert_eq!(decoded.json(), Some(r#"{"to":{"city":"Ulm"}}"#));
    }
    let misfit = value(&registry, &framed(7, b"\x06Ul")).await;
    let reason = misfit.outcome.unwrap_err();
    assert!(
        reason.contains("Avro schema 7") && reason.contains("to: city"),
        "{reason}"
    );
    let read = paths(&requests);
    assert_eq!(
        read,
        [
            "/api/schemas/ids/7",
            "/api/subjects/the%20address/versions/3",
            "/api/schemas/ids/7/versions"
        ]
    );
}

#[tokio::test]
async fn protobuf_with_an_import_and_json() {
    let order = r#"{"schemaType": "PROTOBUF", "schema": "syntax = \"proto3\"; import \"a.proto\"; message Other {} message Order { Address to = 1; }",
        "references": [{"name": "a.proto", "subject": "a", "version": 1}]}"#;
    let address = r#"{"schema": "syntax = \"proto3\"; message Address { string city = 1; }"}"#;
    let (registry, _requests) = registry(&[
        ("/schemas/ids/8", 200, order),
        ("/subjects/a/versions/1", 200, address),
        (
            "/schemas/ids/9",
            200,
            r#"{"schemaType": "JSON", "schema": "{}", "references": [{"name": "gone", "subject": "gone", "version": 1}]}"#,
        ),
        (
            "/schemas/ids/10",
            200,
            r#"{"schemaType": "THRIFT", "schema": ""}"#,
        ),
        (
            "/schemas/ids/11",
            200,
            r#"{"schema": "{\"type\": \"unknown\"}"}"#,
        ),
    ]);
    // The second message of the file.
    let decoded = value(&registry, &framed(8, b"\x02\x02\x0a\x05\x0a\x03Ulm")).await;
    assert_eq!(decoded.kind, Some(Kind::Protobuf));
    assert_eq!(decoded.json(), Some(r#"{"to":{"city":"Ulm"}}"#));
    assert_eq!(decoded.subject, None);
    let decoded = value(&registry, &framed(9, b"{\"a\": 1}")).await;
    assert_eq!(
        (decoded.kind, decoded.json()),
        (Some(Kind::Json), Some("{\"a\": 1}"))
    );
    assert!(value(&registry, &framed(9, b"{")).await.outcome.is_err());
    for (id, reason) in [(10, "THRIFT"), (11, "unknown")] {
        let decoded = value(&registry, &framed(id, b"")).await;
        assert_eq!(decoded.kind, None);
        let found = decoded.outcome.unwrap_err();
        assert!(found.contains(reason), "{found}");
    }
}

#[tokio::test]
async fn ids_in_headers_and_bytes_without_a_schema_id() {
    let (registry, requests) = registry(&[(
        "/schemas/guids/00000000-0000-0000-0000-000000000001",
        200,
        r#"{"schema": "\"long\""}"#,
    )]);
    let mut guid = vec![1];
    guid.extend([0; 15]);
    guid.push(1);
    let headers = [RecordHeader::new(
        Bytes::from("__value_schema_id"),
        Some(Bytes::from(guid)),
    )];
    let decoded = decode(&registry, Some(b"text"), Some(&[10]), &headers).await;
    assert!(decoded.key.is_none());
    assert_eq!(decoded.value.unwrap().json(), Some("5"));
    let plain = decode(&registry, Some(&[0; 8]), None, &[]).await;
    assert!(plain.key.is_none() && plain.value.is_none());
    assert_eq!(paths(&requests).len(), 1);
}

#[tokio::test]
async fn missing_schemas_are_not_requested_again() {
    let (registry, requests) = registry(&[]);
    for _ in 0..3 {
        let reason = value(&registry, &framed(7, b"")).await.outcome.unwrap_err();
        assert!(reason.contains("/schemas/ids/7"), "{reason}");
    }
    assert_eq!(paths(&requests).len(), 1);
}

#[tokio::test]
async fn a_refusing_registry_is_named_and_not_queried_again() {
    let (registry, requests) = registry_with(
        &[
            ("/schemas/ids/7", 401, ""),
            ("/schemas/ids/8", 401, ""),
            ("/schemas/ids/9", 401, ""),
        ],
        &[("basic.auth.user.info", "ann:secret")],
    );
    // The last one is no longer requested.
    for id in 7..=10 {
        let reason = value(&registry, &framed(id, b""))
            .await
            .outcome
            .unwrap_err();
        assert!(
            reason.contains("401") && !reason.contains("secret"),
            "{reason}"
        );
    }
    let requests: Vec<String> = requests.try_iter().collect();
    assert_eq!(requests.len(), 3, "{requests:?}");
    for request in requests {
        let request = request.to_ascii_lowercase();
        assert!(
            request.contains("authorization: basic yw5uonnly3jlda=="),
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_denied_or_too_long_schema_does_not_affect_others() {
    let long = " ".repeat(2 << 20);
    let (registry, requests) = registry(&[
        ("/schemas/ids/6", 200, long.as_str()),
        ("/schemas/ids/7", 403, ""),
        ("/schemas/ids/8", 200, r#"{"schema": "\"long\""}"#),
    ]);
    for _ in 0..2 {
        let denied = value(&registry, &framed(7, b"")).await;
        let reason = denied.outcome.unwrap_err();
        assert!(
            reason.contains("/schemas/ids/7") && reason.contains("403"),
            "{reason}"
        );
    }
    let too_long = value(&registry, &framed(6, b"")).await;
    assert!(!too_long.is_unread, "{:?}", too_long.outcome);
    let other = value(&registry, &framed(8, &[10])).await;
    assert_eq!(other.json(), Some("5"));
    let asked = paths(&requests);
    let denied = asked.iter().filter(|it| it.ends_with("/ids/7"));
    assert_eq!(denied.count(), 1, "{asked:?}");
}

#[tokio::test]
async fn a_failing_schema_does_not_affect_others() {
    let (registry, requests) = registry(&[
        ("/schemas/ids/7", 500, ""),
        ("/schemas/ids/8", 200, r#"{"schema": "\"long\""}"#),
    ]);
    for _ in 0..2 {
        let failed = value(&registry, &framed(7, b"")).await;
        assert!(failed.is_unread, "{:?}", failed.outcome);
    }
    let other = value(&registry, &framed(8, &[10])).await;
    assert_eq!(other.json(), Some("5"));
    let asked = paths(&requests);
    let failed = asked.iter().filter(|it| it.ends_with("/ids/7"));
    assert_eq!(failed.count(), 1, "{asked:?}");
}

#[tokio::test]
async fn a_schema_is_read_in_reserved_memory_and_later_if_there_is_none() {
    let (mut registry, requests) =
        registry(&[("/schemas/ids/8", 200, r#"{"schema": "\"long\""}"#)]);
    let budget = Budget::default();
    registry.budget = budget.clone();
    let all = budget.reserve(usize::MAX).unwrap();
    let unread = value(&registry, &framed(8, &[10])).await;
    assert!(unread.is_unread);
    let reason = unread.outcome.unwrap_err();
    assert!(reason.contains("memory"), "{reason}");
    assert_eq!(paths(&requests), Vec::<String>::new());
    drop(all);
    let read = value(&registry, &framed(8, &[10])).await;
    assert_eq!(read.json(), Some("5"));
    // Nothing of it is kept.
    assert!(budget.reserve(usize::MAX).is_ok());
}

#[tokio::test]
async fn a_schema_that_breaks_its_parser_is_not_read_for_each_record() {
    let parse = || -> u8 { panic!("a parser") };
    let error = tokio::task::spawn_blocking(parse).await.unwrap_err();
    let failure = broken(SchemaId::Number(7), &error);
    assert!(matches!(failure, Failure::Schema(_)), "{failure:?}");
    let task = tokio::spawn(std::future::pending::<()>());
    task.abort();
    let failure = broken(SchemaId::Number(7), &task.await.unwrap_err());
    assert!(matches!(failure, Failure::Registry(_)), "{failure:?}");
}

#[tokio::test]
async fn a_registry_that_is_away_is_a_reason() {
    let [port] = ottla_testkit::lease_ports().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let config = RegistryConfig::new(&url, &BTreeMap::new()).unwrap();
    let registry = Registry::new(config, Budget::default());
    let reason = value(&registry, &framed(7, b"")).await.outcome.unwrap_err();
    assert!(reason.contains(&url), "{reason}");
}
