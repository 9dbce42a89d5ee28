//! The stores against real servers, which `cargo xtask tiered` starts and names in the environment:
//! `OTTLA_S3_ENDPOINT` (versitygw), `OTTLA_GCS_ENDPOINT` (fake-gcs-server), `OTTLA_AZURE_ENDPOINT`
//! (Azurite). Compiled only with the feature `real-stores`, and run only if ignored tests are.
//!
//! fake-gcs-server knows no uploads in parts, no credentials, and no codes of errors. What a case
//! cannot see there is left out of its list, and tested in `gcs` against a server of our own.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_testkit::fault_server::{Behind, FaultKind, FaultServer, passed_on};
use ottla_tiered_storage::{RemoteStorageErrorKind, RemoteStorageManager, read_all};

use crate::segments::{copy_read_and_delete, encryption, open, segment, settings};

type Settings = Vec<(&'static str, String)>;

/// A store, and the server that it talks to through one that can fail.
struct Store {
    server: FaultServer,
    /// The beginning of its objects' names in messages.
    location: &'static str,
    /// But for what opens it, and for the bucket.
    place: Settings,
    /// The setting with the bucket's name.
    bucket: &'static str,
    /// Each opens the store.
    access: Vec<Settings>,
    /// The server refuses it.
    wrong_access: Settings,
    /// Is in the line of a request that uploads a part. None: the server has no parts.
    part_request: Option<&'static str>,
    /// Forms of objects that only this store has.
    forms: Vec<Settings>,
}

impl Store {
    fn settings(&self, bucket: &str, all: &[&Settings]) -> BTreeMap<String, String> {
        let mut named = settings(&[(
            "remote.log.storage.manager.class.name",
            "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        )]);
        let mut set = |name: &str, value: &str| {
            named.insert(format!("rsm.config.{name}"), value.to_owned());
        };
        set("chunk.size", "1000000");
        set(self.bucket, bucket);
        for (name, value) in std::iter::once(&self.place)
            .chain(all.iter().copied())
            .flatten()
        {
            set(name, value);
        }
        named
    }

    fn open(&self, case: &str) -> std::sync::Arc<dyn RemoteStorageManager> {
        open(&self.settings("segments", &[&self.access[0], &prefix(case)]))
    }
}

/// Cases run at the same time, and have the same segment.
fn prefix(case: &str) -> Settings {
    vec![("key.prefix", format!("{case}/"))]
}

fn endpoint(variable: &str) -> String {
    let endpoint = std::env::var(variable);
    let endpoint = endpoint.unwrap_or_else(|_| panic!("the suite `tiered` sets {variable}"));
    endpoint.trim_start_matches("http://").to_owned()
}

async fn s3() -> Store {
    let server = FaultServer::in_front_of(Behind::Server(endpoint("OTTLA_S3_ENDPOINT"))).await;
    let access = |secret: &str| {
        vec![
            ("storage.aws.access.key.id", "test".to_owned()),
            ("storage.aws.secret.access.key", secret.to_owned()),
        ]
    };
    Store {
        location: "s3://segments",
        place: vec![
            (
                "storage.backend.class",
                "io.aiven.kafka.tieredstorage.storage.s3.S3Storage".to_owned(),
            ),
            ("storage.s3.region", "us-east-1".to_owned()),
            ("storage.s3.endpoint.url", server.endpoint.clone()),
            (
                "storage.s3.multipart.upload.part.size",
                "5242880".to_owned(),
            ),
        ],
        bucket: "storage.s3.bucket.name",
        access: vec![access("testsecret")],
        wrong_access: access("wrong"),
        part_request: Some("partNumber="),
        forms: vec![vec![(
            "storage.aws.checksum.check.enabled",
            "true".to_owned(),
        )]],
        server,
    }
}

async fn gcs() -> Store {
    let server = FaultServer::in_front_of(Behind::FakeGcs(endpoint("OTTLA_GCS_ENDPOINT"))).await;
    let token = r#"{"access_token": "any"}"#.to_owned();
    Store {
        location: "gs://segments",
        place: vec![
            (
                "storage.backend.class",
                "io.aiven.kafka.tieredstorage.storage.gcs.GcsStorage".to_owned(),
            ),
            ("storage.gcs.endpoint.url", server.endpoint.clone()),
        ],
        bucket: "storage.gcs.bucket.name",
        access: vec![
            vec![("storage.gcs.credentials.default", "false".to_owned())],
            vec![("storage.gcs.credentials.json", token)],
        ],
        wrong_access: Vec::new(),
        part_request: None,
        forms: Vec::new(),
        server,
    }
}

/// The account of the server.
const ACCOUNT: &str = "test";
/// In Base64, as in settings.
const ACCOUNT_KEY: &str = "dGVzdHNlY3JldA==";

async fn azure() -> Store {
    let address = endpoint("OTTLA_AZURE_ENDPOINT");
    let server = FaultServer::in_front_of(Behind::Server(address.clone())).await;
    create_container(&address).await;
    let url = format!("{}/{ACCOUNT}", server.endpoint);
    let with_key = |key: &str| {
        vec![
            ("storage.azure.account.name", ACCOUNT.to_owned()),
            ("storage.azure.account.key", key.to_owned()),
            ("storage.azure.endpoint.url", url.clone()),
        ]
    };
    let connection = format!("AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={url};");
    let with_token = vec![
        ("storage.azure.sas.token", container_token()),
        ("storage.azure.endpoint.url", url.clone()),
    ];
    Store {
        location: "azure://test/segments",
        place: vec![
            (
                "storage.backend.class",
                "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage".to_owned(),
            ),
            ("storage.azure.upload.block.size", "5242880".to_owned()),
        ],
        bucket: "storage.azure.container.name",
        access: vec![
            with_key(ACCOUNT_KEY),
            vec![("storage.azure.connection.string", connection)],
            with_token,
        ],
        wrong_access: with_key("d3Jvbmc="),
        part_request: Some("comp=block&"),
        forms: Vec::new(),
        server,
    }
}

/// A token for the blobs of the container.
fn container_token() -> String {
    let resource = format!("/blob/{ACCOUNT}/segments");
    let signed = [
        "rcwd",
        "",
        UNTIL,
        resource.as_str(),
        "",
        "",
        "",
        VERSION,
        "c",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
    ];
    format!(
        "sp=rcwd&se={UNTIL}&sv={VERSION}&sr=c&sig={}",
        signature(&signed)
    )
}

async fn create_container(address: &str) {
    // A token of the account: a container can be created with no other.
    let signed = [ACCOUNT, "c", "b", "c", "", UNTIL, "", "", VERSION, "", ""];
    let token = format!(
        "sp=c&se={UNTIL}&sv={VERSION}&ss=b&srt=c&sig={}",
        signature(&signed)
    );
    let head = format!(
        "PUT /{ACCOUNT}/segments?restype=container&{token} HTTP/1.1\r\nHost: {address}\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let answer = passed_on(address, &head, &[]).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let is_there = ["HTTP/1.1 201", "HTTP/1.1 409"];
    assert!(
        is_there.iter().any(|status| answer.starts_with(status)),
        "{answer}"
    );
}

const UNTIL: &str = "2099-01-01T00:00:00Z";
/// Of Azure's protocol, in which tokens are signed.
const VERSION: &str = "2023-11-03";

/// Percent-encoded.
fn signature(lines: &[&str]) -> String {
    let key = BASE64_STANDARD.decode(ACCOUNT_KEY).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = BASE64_STANDARD.encode(hmac::sign(&key, lines.join("\n").as_bytes()));
    let encoded = [("+", "%2B"), ("/", "%2F"), ("=", "%3D")];
    encoded
        .iter()
        .fold(signature, |text, (from, to)| text.replace(*from, to))
}

macro_rules! cases {
    ($store:ident: $($case:ident)*) => {
        mod $store {
            $(
                #[tokio::test]
                #[ignore = "needs its server: cargo xtask tiered"]
                async fn $case() {
                    super::$case(super::$store().await, stringify!($case)).await;
                }
            )*
        }
    };
}

cases!(s3:
    segments_are_taken_and_given_back
    each_access_opens_the_store
    keys_may_have_any_characters
    a_server_that_stumbles_is_tried_again
    wrong_credentials_are_refused
    a_refusal_names_the_settings_to_check
    a_missing_bucket_is_no_missing_object
);

cases!(gcs:
    segments_are_taken_and_given_back
    each_access_opens_the_store
    keys_may_have_any_characters
    a_server_that_stumbles_is_tried_again
    a_refusal_names_the_settings_to_check
);

cases!(azure:
    segments_are_taken_and_given_back
    each_access_opens_the_store
    keys_may_have_any_characters
    a_server_that_stumbles_is_tried_again
    wrong_credentials_are_refused
    a_refusal_names_the_settings_to_check
    a_missing_bucket_is_no_missing_object
);

const SIZE: usize = 12_000_000;

async fn segments_are_taken_and_given_back(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let plain = real.settings("segments", &[&real.access[0], &prefix(case)]);
    let mut encrypted = plain.clone();
    encrypted.insert(
        "rsm.config.compression.enabled".to_owned(),
        "true".to_owned(),
    );
    encrypted.extend(encryption());
    let mut all = vec![plain, encrypted];
    for form in &real.forms {
        all.push(real.settings("segments", &[&real.access[0], &prefix(case), form]));
    }
    for settings in all {
        let is_plain = !settings.contains_key("rsm.config.compression.enabled");
        let store = open(&settings);
        real.server.requests();
        let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
        copy.await.unwrap();
        let requests = real.server.requests();
        if let (Some(part), true) = (real.part_request, is_plain) {
            let parts = requests.iter().filter(|line| line.contains(part));
            assert_eq!(parts.count(), 3, "{requests:?}");
        }
        for object in store.stored_objects(&segment.metadata).await {
            let size = object.size_bytes.unwrap();
            let expected = object.expected_size_bytes;
            assert!(expected.is_none_or(|expected| expected == size));
        }
        for (start, end) in [(1_234, None), (2_999_999, Some(3_000_000))] {
            let stream = store.fetch_log_segment(&segment.metadata, start, end).await;
            let end = end.map_or(SIZE, |end: u32| end as usize + 1);
            let bytes = read_all(stream.unwrap()).await.unwrap();
            assert!(bytes == segment.log[start as usize..end]);
        }
        // The second time, nothing is there.
        for _ in 0..2 {
            let deleted = store.delete_log_segment_data(&segment.metadata);
            deleted.await.unwrap();
        }
        let gone = store.fetch_log_segment(&segment.metadata, 0, None).await;
        // The manifest is no longer cached.
        let error = gone.err().unwrap();
        assert_eq!(error.kind, RemoteStorageErrorKind::NotFound, "{error}");
        let key = format!("{}/{case}/orders-", real.location);
        assert!(error.what.starts_with(&format!("fetch {key}")), "{error}");
    }
}

async fn each_access_opens_the_store(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    for access in &real.access {
        let store = open(&real.settings("segments", &[access, &prefix(case)]));
        copy_read_and_delete(&*store, &segment).await;
    }
}

/// Each server decodes and signs paths in its own way.
async fn keys_may_have_any_characters(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    let prefix = prefix(&format!("{case}/ä %41 b+"));
    let store = open(&real.settings("segments", &[&real.access[0], &prefix]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
    assert!(read_all(stream.unwrap()).await.unwrap() == segment.log);
    let deleted = store.delete_log_segment_data(&segment.metadata);
    deleted.await.unwrap();
    let gone = store.fetch_log_segment(&segment.metadata, 0, None).await;
    let error = gone.err().unwrap();
    assert_eq!(error.kind, RemoteStorageErrorKind::NotFound, "{error}");
}

async fn a_server_that_stumbles_is_tried_again(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let busy = FaultKind::Status(503, "SlowDown");
    if let Some(part) = real.part_request {
        real.server.fail(part, 2, busy);
    }
    real.server.fail("manifest", 2, busy);
    let store = real.open(case);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    real.server.fail("log bytes=1000000-", 2, busy);
    real.server.fail("log bytes=2000000-", 1, FaultKind::Cut);
    real.server.fail("log bytes=3000000-", 1, FaultKind::Close);
    let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
    assert!(read_all(stream.unwrap()).await.unwrap() == segment.log);
    let requests = real.server.requests();
    let attempts = |of: &str| requests.iter().filter(|line| line.contains(of)).count();
    assert_eq!(attempts("log bytes=1000000-"), 3, "{requests:?}");
    assert_eq!(attempts("log bytes=3000000-"), 2, "{requests:?}");
    if let Some(part) = real.part_request {
        assert_eq!(attempts(part), 5, "{requests:?}");
    }
}

async fn wrong_credentials_are_refused(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    let store = open(&real.settings("segments", &[&real.wrong_access, &prefix(case)]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let copied = copy.await.unwrap_err();
    let object = format!("upload {}/{case}/orders-", real.location);
    assert!(copied.what.starts_with(&object), "{copied}");
    let fetched = store.fetch_log_segment(&segment.metadata, 0, None).await;
    let deleted = store.delete_log_segment_data(&segment.metadata).await;
    for error in [copied, fetched.err().unwrap(), deleted.unwrap_err()] {
        assert_eq!(error.kind, RemoteStorageErrorKind::Denied, "{error}");
        assert!(error.cause.starts_with("the store answered "), "{error}");
    }
}

/// The server in front refuses: not every server knows credentials.
async fn a_refusal_names_the_settings_to_check(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    let (setting, _) = real.bucket.rsplit_once('.').unwrap();
    let (store_settings, _) = setting.rsplit_once('.').unwrap();
    let advice = match store_settings {
        "storage.s3" => "check storage.aws.".to_owned(),
        own => format!("check {own}."),
    };
    for status in [401, 403] {
        let store = real.open(case);
        real.server
            .fail("manifest", 1, FaultKind::Status(status, "AccessDenied"));
        let fetched = store.fetch_log_segment(&segment.metadata, 0, None).await;
        let error = fetched.err().unwrap();
        assert_eq!(error.kind, RemoteStorageErrorKind::Denied, "{error}");
        assert!(error.cause.contains(&advice), "{error}");
    }
}

async fn a_missing_bucket_is_no_missing_object(real: Store, case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    let store = open(&real.settings("missing", &[&real.access[0], &prefix(case)]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let copied = copy.await.unwrap_err();
    let fetched = store.fetch_log_segment(&segment.metadata, 0, None).await;
    let deleted = store.delete_log_segment_data(&segment.metadata).await;
    for error in [copied, fetched.err().unwrap(), deleted.unwrap_err()] {
        assert_eq!(error.kind, RemoteStorageErrorKind::Settings, "{error}");
        assert!(
            error.cause.contains(&format!("check {}", real.bucket)),
            "{error}"
        );
    }
}
