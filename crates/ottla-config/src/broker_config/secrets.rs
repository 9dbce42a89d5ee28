//! Whether a node has secrets in its memory because of its configuration.

use super::BrokerConfig;
use crate::config_def::ConfigDef;
use crate::tables::broker_config;

/// Settings that name a file with a secret.
const FILES: [&str; 5] = [
    "ottla.console.oidc.config",
    "ottla.console.schema.registry.config",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "ssl.keystore.location",
];
/// The store's own settings, of which some are credentials and names of key files.
const STORE_PREFIX: &str = "remote.log.storage.manager.impl.prefix";

impl BrokerConfig {
    /// Whether a setting, of the file or a dynamic one, is a secret or leads to one: a password, a JAAS
    /// entry or file, a private key, or the credentials of the store of tiered storage. Or whether clients
    /// log in: the credentials of users are in the metadata, and those that clients send in requests.
    pub fn has_secrets(&self) -> bool {
        let store = self.setting(STORE_PREFIX).unwrap_or("rsm.config.");
        let is_secret = |(key, value): (&String, &String)| {
            let mut defs = settings_of(key);
            let is_meant = defs.any(|def| def.is_sensitive() || FILES.contains(&def.name))
                || (self.remote_log_storage_system_enable && key.starts_with(store));
            is_meant && !value.trim().is_empty()
        };
        let mut settings = [
            &self.static_settings,
            &self.dynamic_default_settings,
            &self.dynamic_settings,
        ]
        .into_iter()
        .flatten();
        let mut listeners = self.listeners.iter();
        self.jaas_file.is_some()
            || listeners.any(|listener| listener.protocol.uses_sasl())
            || settings.any(is_secret)
    }

    /// Whether the value of a broker setting with this key is a secret: a password, a JAAS entry or a
    /// private key. A file that contains one does not count.
    pub fn is_secret_setting(key: &str) -> bool {
        settings_of(key).any(ConfigDef::is_sensitive)
    }
}

/// The settings that a key may mean: all of it, or what follows a prefix, such as that of a listener and
/// a mechanism, or that of the metadata manager's clients.
fn settings_of(key: &str) -> impl Iterator<Item = &'static ConfigDef> {
    let after_prefixes = key.match_indices('.').map(move |(dot, _)| &key[dot + 1..]);
    std::iter::once(key)
        .chain(after_prefixes)
        .filter_map(broker_config)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::single_node_properties;

    fn config(settings: &[(&str, &str)]) -> BrokerConfig {
        let mut properties = single_node_properties("/data", "127.0.0.1:1", "127.0.0.1:2");
        for (key, value) in settings {
            properties.set(key, value);
        }
        BrokerConfig::from_properties(&properties)
            .expect("valid settings")
            .0
    }

    #[test]
    fn passwords_keys_and_credentials_are_secrets() {
        let without: [&[(&str, &str)]; 4] = [
            &[],
            &[("ssl.truststore.location", "/trust.pem")],
            &[("ssl.keystore.location", "")],
            // Without tiered storage, nothing reads it.
            &[("rsm.config.storage.aws.secret.access.key", "s")],
        ];
        for settings in without {
            assert!(!config(settings).has_secrets(), "{settings:?}");
        }
        for settings in [
            [("ssl.truststore.password", "s")],
            [("listener.name.a.ssl.keystore.location", "/key.pem")],
            [("listener.name.a.plain.sasl.jaas.config", "x required;")],
            [("delegation.token.secret.key", "s")],
            [(
                "rlmm.config.remote.log.metadata.common.client.sasl.jaas.config",
                "x required;",
            )],
            [("ottla.console.oidc.config", "/oidc.properties")],
        ] {
            assert!(config(&settings).has_secrets(), "{settings:?}");
        }
        // Users with SCRAM are in no setting.
        let logins = [
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:1,CLIENTS://127.0.0.1:3,CONTROLLER://127.0.0.1:2",
            ),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            ),
            ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ];
        assert!(config(&logins).has_secrets());
        for name in FILES {
            assert!(broker_config(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_setting_of_another_node_is_known_by_its_key() {
        for (key, is_secret) in [
            ("listener.name.a.ssl.keystore.password", true),
            ("listener.name.a.plain.sasl.jaas.config", true),
            ("listener.name.a.ssl.keystore.location", false),
            ("log.cleaner.threads", false),
            ("password", false),
        ] {
            assert_eq!(BrokerConfig::is_secret_setting(key), is_secret, "{key}");
        }
    }

    #[test]
    fn dynamic_settings_and_the_jaas_file_count() {
        let key = "listener.name.a.ssl.keystore.password".to_owned();
        let dynamic = BTreeMap::from([(key, "s".to_owned())]);
        let (with_dynamic, _) = config(&[]).with_dynamic(&BTreeMap::new(), &dynamic);
        assert!(with_dynamic.has_secrets());

        let mut properties = single_node_properties("/data", "127.0.0.1:1", "127.0.0.1:2");
        properties.set_jaas_file("/etc/jaas.conf", "");
        let (with_file, _) = BrokerConfig::from_properties(&properties).expect("valid settings");
        assert!(with_file.has_secrets());
    }
}
