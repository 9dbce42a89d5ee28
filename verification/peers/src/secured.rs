//! Settings of secured nodes and of their clients, with Kafka's names, the same for every peer.
//!
//! All of them have one folder with PEM files: `authority.pem` is the trust store, and `USER.pem`
//! the key store of a user. The password of a user is the name with the suffix `-secret`.

use std::path::{Path, PathBuf};

pub const MODULES: &str = "org.apache.kafka.common.security";

fn key_store(user: &str, dir: &Path) -> PathBuf {
    dir.join(user).with_extension("pem")
}

/// The certificate of a node or client, and whom it trusts.
pub fn stores(user: &str, dir: &Path) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("ssl.keystore.type", "PEM".to_owned()),
        (
            "ssl.keystore.location",
            key_store(user, dir).display().to_string(),
        ),
    ];
    settings.extend(trust(dir));
    settings
}

pub fn trust(dir: &Path) -> [(&'static str, String); 2] {
    let authority = dir.join("authority.pem");
    [
        ("ssl.truststore.type", "PEM".to_owned()),
        ("ssl.truststore.location", authority.display().to_string()),
    ]
}

/// The JAAS entry of a user of SCRAM.
pub fn scram_entry(user: &str) -> String {
    format!(
        "{MODULES}.scram.ScramLoginModule required username=\"{user}\" password=\"{user}-secret\";"
    )
}

/// The JAAS entry of a listener with SCRAM, whose users are in the metadata.
pub fn scram_listener_entry() -> String {
    format!("{MODULES}.scram.ScramLoginModule required;")
}

/// A credential as `storage format --add-scram` takes it, with Kafka's default iterations.
pub fn scram_credential(mechanism: &str, user: &str) -> String {
    format!("{mechanism}=[name={user},password={user}-secret]")
}

/// The text of a properties file.
pub fn properties(settings: &[(&str, String)]) -> String {
    let lines = settings
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"));
    lines.collect()
}
