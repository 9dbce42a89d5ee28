//! Compares the settings with the settings of Kafka's clients: every key is known, and has Kafka's
//! default.
//!
//! The file is written by `conformance/java/clientsettings`. `cargo xtask client` regenerates it
//! and passes its path in `OTTLA_CLIENT_SETTINGS`.

use super::*;

/// Keys whose default is refused, because this client does not support it, or is different.
const OTHERS: &[(&str, &str)] = &[
    (
        "bootstrap.servers",
        "an admin client may also have controllers, and needs either",
    ),
    (
        "client.id",
        "Kafka numbers its clients where it is empty; here it is `ottla`",
    ),
    (
        "enable.idempotence",
        "explicit and default values are distinguished, as in Kafka",
    ),
    (
        "ssl.keystore.type",
        "stores of Java cannot be read, and need not be without one",
    ),
    ("ssl.truststore.type", "the same"),
];

/// The effect of a setting on a client.
fn applied(client: &str, settings: &BTreeMap<String, String>) -> Result<String, ClientError> {
    match client {
        "producer" => producer(settings).map(|it| format!("{it:?}")),
        "consumer" => consumer(settings).map(|it| format!("{it:?}")),
        "admin" => admin(settings).map(|it| format!("{it:?}")),
        other => panic!("{other}: no client"),
    }
}

#[test]
fn every_setting_of_kafkas_clients_is_known_with_its_default() {
    let text = match std::env::var("OTTLA_CLIENT_SETTINGS") {
        Ok(file) => std::fs::read_to_string(&file).expect("the file that was named"),
        Err(_) => include_str!("kafka_defaults.txt").to_owned(),
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let mut words = line.splitn(3, '\t');
        let (client, key) = (
            words.next().expect("a client"),
            words.next().expect("a key"),
        );
        let default = words.next();
        count += 1;
        let settings = BTreeMap::from([(key.to_owned(), default.unwrap_or_default().to_owned())]);
        let outcome = applied(client, &settings);
        let is_unknown = |error: &ClientError| error.to_string().contains("has no such setting");
        match outcome {
            Err(error) if is_unknown(&error) => wrong.push(format!("{client}: {error}")),
            // An empty text is not a valid value of most settings.
            _ if default.is_none() || OTHERS.iter().any(|(other, _)| *other == key) => {}
            Err(error) => wrong.push(format!("{client}: {error}")),
            Ok(found) => {
                let expected = applied(client, &BTreeMap::new()).expect("the defaults");
                if found != expected {
                    wrong.push(format!(
                        "{client}: {line} gives\n{found}\nand not\n{expected}"
                    ));
                }
            }
        }
    }
    assert!(count > 250, "only {count} settings");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
