use super::*;

fn s3(more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let least = [
        ("remote.log.storage.manager.class.name", CHUNKED_CLASS),
        (
            "rsm.config.storage.backend.class",
            "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        ),
        ("rsm.config.storage.s3.bucket.name", "b"),
        ("rsm.config.storage.s3.region", "eu-1"),
        ("rsm.config.chunk.size", "4194304"),
        ("log.dirs", "/data"),
    ];
    let all = least.iter().chain(more);
    all.map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn read(settings: &BTreeMap<String, String>) -> Result<ChunkedSettings, String> {
    match StorageSettings::from_broker(settings) {
        Ok(StorageSettings::Chunked(settings)) => Ok(*settings),
        Ok(StorageSettings::Local(_)) => Err("local".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn defaults_equal_the_plugins() {
    let settings = read(&s3(&[])).unwrap_or_else(|error| panic!("{error}"));
    assert!(!settings.compression && settings.encryption.is_none());
    assert_eq!(settings.manifest_cache.size, Some(1000));
    assert_eq!(settings.indexes_cache.size, Some(10 << 20));
    assert_eq!(settings.chunk_cache, None);
    let BackendSettings::S3(s3) = settings.backend else {
        panic!("not S3");
    };
    assert_eq!(s3.part_size, 25 << 20);
    assert!(matches!(
        s3.credentials,
        S3Credentials::Provider(AwsProvider::Default)
    ));
}

#[test]
fn a_wrong_setting_is_named_with_its_value_and_the_way_out() {
    const AWS: &str = "software.amazon.awssdk.auth.credentials.";
    for (more, expected) in [
        (
            &[("rsm.config.chunk.sise", "1")][..],
            "rsm.config.chunk.sise: this store has no such setting; remove the line, or correct its name; did you mean rsm.config.chunk.size?",
        ),
        (
            &[("rsm.config.chunk.size", "abc")],
            "rsm.config.chunk.size: is abc; give a number from 1 to 1073741823",
        ),
        (
            &[("rsm.config.compression.heuristic.enabled", "true")],
            "rsm.config.compression.heuristic.enabled: is true; set compression.enabled=true too",
        ),
        (
            &[("rsm.config.storage.aws.access.key.id", "x")],
            "rsm.config.storage.aws.secret.access.key: is missing beside storage.aws.access.key.id",
        ),
        (
            &[
                ("rsm.config.storage.aws.credentials.file", "/x"),
                (
                    "rsm.config.storage.aws.credentials.provider.class",
                    &format!("{AWS}DefaultCredentialsProvider"),
                ),
            ],
            "rsm.config.storage.aws.credentials.file: is set together with \
             storage.aws.credentials.provider.class; remove one of them",
        ),
        (
            &[
                ("rsm.config.encryption.enabled", "true"),
                ("rsm.config.encryption.key.pair.id", "k"),
            ],
            "rsm.config.encryption.key.pairs: does not list k, which encryption.key.pair.id names",
        ),
        (
            &[(
                "rsm.config.custom.metadata.fields.include",
                "REMOTE_SIZE,SIZE",
            )],
            "rsm.config.custom.metadata.fields.include: names SIZE; give REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY",
        ),
        (
            &[("rsm.config.segment.format", "iceberg")],
            "rsm.config.segment.format: is iceberg; only kafka is known",
        ),
        (
            &[
                ("rsm.config.storage.proxy.host", "h"),
                ("rsm.config.storage.proxy.port", "1"),
            ],
            "rsm.config.storage.proxy.host, rsm.config.storage.proxy.port: this store has no such \
             settings; remove the lines, or correct their names",
        ),
        (
            &[("remote.log.storage.manager.class.name", "com.example.Store")],
            "remote.log.storage.manager.class.name: is com.example.Store, a plugin of a JVM; known \
             are io.aiven.kafka.tieredstorage.RemoteStorageManager and \
             org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        ),
    ] {
        assert_eq!(read(&s3(more)).err().as_deref(), Some(expected));
    }
}

#[test]
fn another_prefix_is_followed() {
    let settings: BTreeMap<String, String> = [
        ("remote.log.storage.manager.class.name", LOCAL_CLASS),
        ("remote.log.storage.manager.impl.prefix", "mine."),
        ("mine.dir", "/store"),
        ("rsm.config.chunk.size", "ignored"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    match StorageSettings::from_broker(&settings) {
        Ok(StorageSettings::Local(local)) => assert_eq!(local.dir, PathBuf::from("/store")),
        _ => panic!("not the local store"),
    }
}

fn azure(more: &[(&str, &str)]) -> Result<AzureSettings, String> {
    let mut settings = s3(&[
        (
            "rsm.config.storage.backend.class",
            "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage",
        ),
        ("rsm.config.storage.azure.container.name", "c"),
    ]);
    settings.retain(|key, _| !key.starts_with("rsm.config.storage.s3."));
    for (key, value) in more {
        settings.insert(
            format!("rsm.config.storage.azure.{key}"),
            (*value).to_owned(),
        );
    }
    match read(&settings)?.backend {
        BackendSettings::Azure(azure) => Ok(azure),
        _ => Err("not Azure".to_owned()),
    }
}

#[test]
fn an_azure_connection_string_is_taken_apart() {
    for (connection, account, endpoint) in [
        (
            "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5PQ==;BlobEndpoint=http://h/a/",
            "a",
            "http://h/a",
        ),
        (
            "DefaultEndpointsProtocol=https; AccountName=a; AccountKey=a2V5PQ==;EndpointSuffix=core.chinacloudapi.cn",
            "a",
            "https://a.blob.core.chinacloudapi.cn",
        ),
        (
            "AccountName=a;AccountKey=a2V5PQ==",
            "a",
            "https://a.blob.core.windows.net",
        ),
    ] {
        let azure = azure(&[("connection.string", connection)]).unwrap();
        assert_eq!(
            (azure.account.as_str(), azure.endpoint_url.as_str()),
            (account, endpoint)
        );
        assert!(matches!(azure.credentials, AzureCredentials::Key(key) if key == "a2V5PQ=="));
    }
    // As the portal shows it beside a new token.
    let connection = "BlobEndpoint=https://a.blob.core.windows.net/;\
                      QueueEndpoint=https://a.queue.core.windows.net/;\
                      FileEndpoint=https://a.file.core.windows.net/;\
                      TableEndpoint=https://a.table.core.windows.net/;\
                      SharedAccessSignature=sv=2024&sig=x%2By%3D";
    let azure = azure(&[("connection.string", connection)]).unwrap();
    assert_eq!(azure.account, "a");
    assert!(
        matches!(azure.credentials, AzureCredentials::SasToken(token) if token == "sv=2024&sig=x%2By%3D")
    );
}

#[test]
fn a_sas_token_needs_no_account_if_it_has_an_endpoint() {
    for (endpoint, account) in [
        ("https://a.blob.core.windows.net", "a"),
        ("http://127.0.0.1:10000/a/", "a"),
        ("http://localhost:10000", "localhost"),
    ] {
        let more = [
            ("sas.token", "?sv=2024&sig=x%3D"),
            ("endpoint.url", endpoint),
        ];
        assert_eq!(azure(&more).unwrap().account, account);
    }
    for (more, expected) in [
        (
            &[("sas.token", "x")][..],
            "rsm.config.storage.azure.account.name: is missing; give it or storage.azure.endpoint.url",
        ),
        (
            &[("endpoint.url", "https://h")],
            "rsm.config.storage.azure.account.name: is missing; give it, azure.sas.token or \
             azure.connection.string",
        ),
        (
            &[(
                "connection.string",
                "AccountName=a;AccountKey=s3cret;Unknown=s3cret",
            )],
            "rsm.config.storage.azure.connection.string: has an unknown part Unknown",
        ),
    ] {
        let error = azure(more).map(|azure| azure.endpoint_url).unwrap_err();
        assert_eq!(error, expected);
    }
}
