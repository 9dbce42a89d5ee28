//! The key and trust stores of a running node's listeners, when they change.

use std::path::Path;

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_context::NodeTls;
use ottla_testkit::certificates::{Authority, Wanted};
use ottla_testkit::said::Said;

fn config(keystore: &Path, truststore: &Path) -> BrokerConfig {
    let [keystore, truststore] = [keystore, truststore].map(|path| path.display().to_string());
    let mut properties = single_node_properties("/nowhere", "h:1", "h:2");
    for (key, value) in [
        ("listeners", "SSL://localhost:1,CONTROLLER://localhost:2"),
        (
            "listener.security.protocol.map",
            "SSL:SSL,CONTROLLER:PLAINTEXT",
        ),
        ("inter.broker.listener.name", "SSL"),
        ("ssl.keystore.type", "PEM"),
        ("ssl.truststore.type", "PEM"),
        ("ssl.keystore.location", &keystore),
        ("ssl.truststore.location", &truststore),
    ] {
        properties.set(key, value);
    }
    BrokerConfig::from_properties(&properties).unwrap().0
}

#[test]
fn a_failure_is_logged_once_and_again_after_a_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("authority");
    let truststore = authority.write(&dir.path().join("trusted.pem"));
    let keystore = authority
        .issue(Wanted::default())
        .write(&dir.path().join("keys.pem"));
    let good = config(&keystore, &truststore);
    let bad = config(&dir.path().join("missing.pem"), &truststore);

    let tls = NodeTls::default();
    tls.load(&good).unwrap();
    let said = Said::listen();
    let failures = || said.text().matches("missing.pem").count();
    let refresh = |config: &BrokerConfig| {
        tls.refresh(config);
        failures()
    };
    let first = refresh(&bad);
    assert!(first > 0, "{}", said.text());
    assert_eq!(refresh(&bad), first);
    assert_eq!(refresh(&good), first);
    assert_eq!(refresh(&bad), 2 * first);
}
