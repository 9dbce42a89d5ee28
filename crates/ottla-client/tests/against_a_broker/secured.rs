//! TLS and SASL against an Apache Kafka broker with secured listeners, which `cargo xtask client`
//! starts and passes in the environment. Without one, only errors before the connection are tested.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_client::admin::{NewScramCredential, NewTopic};
use ottla_client::{
    Admin, Client, ClientConfig, ClientError, Producer, RecordRef, ScramMechanism, properties,
};

const PATIENCE: Duration = Duration::from_secs(60);
const MODULES: &str = "org.apache.kafka.common.security";

/// The address of a listener, by its name.
fn listener(name: &str) -> Option<String> {
    std::env::var(format!("OTTLA_CLIENT_{name}")).ok()
}

fn settings(bootstrap: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::from([
        ("bootstrap.servers".to_owned(), bootstrap.to_owned()),
        ("default.api.timeout.ms".to_owned(), "20000".to_owned()),
    ]);
    for (key, value) in more {
        settings.insert((*key).to_owned(), (*value).to_owned());
    }
    settings
}

async fn produce(settings: &BTreeMap<String, String>) -> Result<(), ClientError> {
    let (client, producer) = properties::producer(settings)?;
    let client = Client::connect(client).await?;
    let producer = Producer::new(client, producer)?;
    let delivery = producer.send_ref(RecordRef::new("secured", b"v")).await?;
    delivery.wait().await.map(drop)
}

/// Returns when the topic can be written to. Both tests need it, and one of them creates it.
async fn create_topic(bootstrap: &str) -> Admin {
    let config = ClientConfig::new(bootstrap).unwrap();
    let admin = Admin::new(Client::connect(config).await.unwrap());
    let topic = NewTopic {
        name: "secured".into(),
        partitions: Some(1),
        ..NewTopic::default()
    };
    admin
        .create_topics(&[topic], false)
        .await
        .expect("an answer");
    let settings = settings(bootstrap, &[]);
    eventually("the topic", async || produce(&settings).await).await;
    admin
}

/// A broker applies changes after it has answered.
async fn eventually(what: &str, attempt: impl AsyncFn() -> Result<(), ClientError>) {
    let began = Instant::now();
    while let Err(error) = attempt().await {
        assert!(began.elapsed() < PATIENCE, "{what}: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn login(module: &str, user: &str, password: &str) -> String {
    format!("{MODULES}.{module} required username=\"{user}\" password=\"{password}\";")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mechanism_logs_in_over_both_protocols() {
    let (Some(plain), Some(sasl)) = (listener("BOOTSTRAP"), listener("SASL_PLAINTEXT")) else {
        let refused = properties::producer(&settings("a:1", &[("security.protocol", "SASL_SSL")]));
        assert!(refused.is_err(), "there is no mechanism");
        return;
    };
    let admin = create_topic(&plain).await;
    let credential = |mechanism| NewScramCredential {
        mechanism,
        iterations: 4096,
        salt: b"some salt".to_vec(),
        password: "bob,=secret".into(),
    };
    for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha512] {
        let upsert = [credential(mechanism)];
        let altered = admin.alter_scram_credentials("bob", &upsert, &[]).await;
        altered.expect("an answer");
    }
    let truststore = listener("TRUSTSTORE");
    let mut listeners = vec![("SASL_PLAINTEXT", sasl)];
    listeners.extend(listener("SASL_SSL").map(|address| ("SASL_SSL", address)));
    for (protocol, address) in &listeners {
        for (mechanism, module, user, password) in [
            ("PLAIN", "plain.PlainLoginModule", "alice", "alice-secret"),
            (
                "SCRAM-SHA-256",
                "scram.ScramLoginModule",
                "bob",
                "bob,=secret",
            ),
            (
                "SCRAM-SHA-512",
                "scram.ScramLoginModule",
                "bob",
                "bob,=secret",
            ),
        ] {
            let try_with = async |password: &str| {
                let jaas = login(module, user, password);
                let mut given = vec![
                    ("security.protocol", *protocol),
                    ("sasl.mechanism", mechanism),
                    ("sasl.jaas.config", &jaas),
                ];
                if let Some(truststore) = &truststore {
                    given.push(("ssl.truststore.type", "PEM"));
                    given.push(("ssl.truststore.location", truststore));
                }
                produce(&settings(address, &given)).await
            };
            let what = format!("{protocol} {mechanism}");
            eventually(&what, async || try_with(password).await).await;
            let refused = try_with("wrong").await.expect_err("refused").to_string();
            assert!(refused.contains("SASL_AUTHENTICATION_FAILED"), "{refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_broker_is_refused() {
    let of_a_broker = (
        listener("BOOTSTRAP"),
        listener("SSL"),
        listener("TRUSTSTORE"),
    );
    let (Some(plain), Some(ssl), Some(truststore)) = of_a_broker else {
        let given = [("security.protocol", "SSL"), ("ssl.truststore.type", "BKS")];
        let given = settings("a:1", &given);
        let refused = properties::producer(&given)
            .expect_err("refused")
            .to_string();
        assert!(
            refused.starts_with("ssl.truststore.type=BKS: give PEM, PKCS12 or JKS"),
            "{refused}"
        );
        return;
    };
    create_topic(&plain).await;
    let trusted = [
        ("security.protocol", "SSL"),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", truststore.as_str()),
    ];
    produce(&settings(&ssl, &trusted)).await.expect("trusted");
    let without_store = settings(&ssl, &[("security.protocol", "SSL")]);
    let refused = produce(&without_store)
        .await
        .expect_err("its certificate is not trusted")
        .to_string();
    assert!(
        refused.contains("TLS:") || refused.contains("ssl.truststore"),
        "{refused}"
    );
}
