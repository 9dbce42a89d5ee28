//! The response to `DescribeConfigs`: every setting of a resource with its value, the source of the
//! value, and its synonyms.
//!
//! Kafka: `kafka.server.ConfigHelper`, `ServerTopicConfigSynonyms`,
//! `DynamicBrokerConfig.brokerConfigSynonyms`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ottla_types::named_enum;

use crate::broker_config::BrokerConfig;
use crate::config_def::{ConfigDef, ConfigType};
use crate::synonyms::{broker_config_synonyms, broker_synonym_of_topic_config};
use crate::tables::{
    CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, broker_config, broker_configs,
};
use crate::topic_config::TopicConfig;

named_enum! {
    /// The source of a value. `DescribeConfigs` responses contain the discriminants.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(i8)]
    pub enum ConfigSource {
        Unknown = 0 => "UNKNOWN",
        Topic = 1 => "DYNAMIC_TOPIC_CONFIG",
        DynamicBroker = 2 => "DYNAMIC_BROKER_CONFIG",
        DynamicDefaultBroker = 3 => "DYNAMIC_DEFAULT_BROKER_CONFIG",
        StaticBroker = 4 => "STATIC_BROKER_CONFIG",
        Default = 5 => "DEFAULT_CONFIG",
        DynamicBrokerLogger = 6 => "DYNAMIC_BROKER_LOGGER_CONFIG",
        ClientMetrics = 7 => "DYNAMIC_CLIENT_METRICS_CONFIG",
        Group = 8 => "DYNAMIC_GROUP_CONFIG",
    }
}

impl ConfigSource {
    pub const fn code(self) -> i8 {
        self as i8
    }

    pub fn from_code(code: i8) -> ConfigSource {
        Self::ALL
            .into_iter()
            .find(|source| source.code() == code)
            .unwrap_or(ConfigSource::Unknown)
    }
}

/// One synonym of a setting, in order of precedence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synonym {
    pub name: String,
    /// `None` for a secret or a setting without a value.
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// One setting of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedConfig {
    pub name: String,
    /// `None` for a secret or a setting without a value.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub is_sensitive: bool,
    pub is_read_only: bool,
    pub synonyms: Vec<Synonym>,
    /// `None` for a name that is not in the tables.
    pub config_type: Option<ConfigType>,
    /// The documentation of the setting, if there is any.
    pub documentation: Option<Cow<'static, str>>,
}

impl DescribedConfig {
    /// The number in a `DescribeConfigs` response; 0 for unknown.
    pub fn type_code(&self) -> i8 {
        self.config_type.map_or(0, ConfigType::code)
    }
}

type Settings = BTreeMap<String, String>;

/// The topic setting of which a broker setting of another name is the default.
fn topic_config_with_default(broker_name: &str) -> Option<&'static str> {
    let mut names = TOPIC_CONFIGS.iter().map(|def| def.name);
    names.find(|name| {
        *name != broker_name && broker_synonym_of_topic_config(name) == Some(broker_name)
    })
}

/// Settings that exist only dynamically (`QuotaConfig.brokerQuotaConfigs`).
const REPLICATION_QUOTAS: &[&str] = &[
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// The broker synonym of a group setting, if any (`GroupConfig.ALL_GROUP_CONFIG_SYNONYMS`).
fn broker_synonym_of_group_config(name: &str) -> Option<&'static str> {
    if name == "streams.assignor.name" {
        return Some("group.streams.assignors");
    }
    let broker_name = format!("group.{name}");
    broker_config(&broker_name).map(|def| def.name)
}

/// The values of a broker setting by precedence: dynamic for this broker, dynamic for the cluster,
/// from the file, default.
fn broker_values(config: &BrokerConfig, name: &str, is_sensitive: bool) -> Vec<Synonym> {
    let names = broker_config_synonyms(name);
    let mut values = Vec::new();
    let mut add = |name: &str, value: Option<&str>, source| {
        let value = value.filter(|_| !is_sensitive).map(str::to_owned);
        values.push(Synonym {
            name: name.to_owned(),
            value,
            source,
        });
    };
    for (settings, source) in [
        (config.dynamic_settings(), ConfigSource::DynamicBroker),
        (
            config.dynamic_default_settings(),
            ConfigSource::DynamicDefaultBroker,
        ),
        (config.static_settings(), ConfigSource::StaticBroker),
    ] {
        for name in &names {
            if let Some(value) = settings.get(*name) {
                add(name, Some(value), source);
            }
        }
    }
    for name in &names {
        if let Some(def) = broker_config(name) {
            match def.default {
                // Kafka does not list a default of null, because its map has no value for the key.
                crate::DefaultValue::Null | crate::DefaultValue::Required => {}
                crate::DefaultValue::Text(text) => add(name, Some(text), ConfigSource::Default),
            }
        }
    }
    // The overrides of listeners do not describe the base setting.
    let own = values.iter().position(|value| value.name == name);
    match own {
        Some(first) => values.split_off(first),
        None => Vec::new(),
    }
}

/// The settings of a topic, given its overrides.
pub fn describe_topic(broker: &BrokerConfig, overrides: &Settings) -> Vec<DescribedConfig> {
    let pairs = overrides
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let (config, _) = TopicConfig::resolve_leniently(&broker.topic_defaults, pairs);
    let mut described = Vec::new();
    for def in TOPIC_CONFIGS
        .iter()
        .filter(|def| !def.internal || overrides.contains_key(def.name))
    {
        let mut synonyms = match broker_synonym_of_topic_config(def.name) {
            Some(name) => broker_values(broker, name, false),
            None => Vec::new(),
        };
        let mut value = config.value_text(def.name);
        if let Some(own) = overrides.get(def.name) {
            value = Some(as_written(def, own));
            synonyms.insert(0, synonym(def.name, &value, ConfigSource::Topic));
        }
        described.push(entry(def, value, synonyms, false));
    }
    described
}

/// The source of the value of a setting of a new topic, for CreateTopics responses
/// (`KafkaConfigSchema.resolveEffectiveTopicConfig`). Unlike in `describe_topic`, the controller
/// searches all names of the broker's setting.
pub fn created_topic_config_source(
    broker: &BrokerConfig,
    overrides: &Settings,
    key: &str,
) -> ConfigSource {
    if overrides.contains_key(key) {
        return ConfigSource::Topic;
    }
    let names = match broker_synonym_of_topic_config(key) {
        Some(name) => broker_config_synonyms(name),
        None => return ConfigSource::Default,
    };
    let sources = [
        (broker.dynamic_settings(), ConfigSource::DynamicBroker),
        (
            broker.dynamic_default_settings(),
            ConfigSource::DynamicDefaultBroker,
        ),
        (broker.static_settings(), ConfigSource::StaticBroker),
    ];
    let found = sources
        .into_iter()
        .find(|(settings, _)| names.iter().any(|name| settings.contains_key(*name)));
    found.map_or(ConfigSource::Default, |(_, source)| source)
}

/// Settings that `StandardAuthorizer` reads, and that Kafka's table of settings does not contain.
const OF_THE_AUTHORIZER: [&str; 2] = ["allow.everyone.if.no.acl.found", "super.users"];

/// The settings of the broker itself.
pub fn describe_broker(broker: &BrokerConfig) -> Vec<DescribedConfig> {
    let mut described = Vec::new();
    for def in broker_configs() {
        // Kafka's replication quotas are not settings of the properties file, and its authorizer
        // reads its own settings. They are shown only if they are set.
        let is_hidden = def.internal
            || REPLICATION_QUOTAS.contains(&def.name)
            || OF_THE_AUTHORIZER.contains(&def.name);
        if is_hidden && broker.setting(def.name).is_none() {
            continue;
        }
        // Not what a variable stands for, which may be a secret.
        let own = broker.written_setting(def.name);
        let own = own.map(|text| as_written(def, text));
        let value = own.or_else(|| def.default_text().map(str::to_owned));
        described.push(broker_entry(
            def,
            value,
            broker_values(broker, def.name, def.is_sensitive()),
        ));
    }
    // Keys that are not in the tables may be secrets, so they are treated as secrets.
    let mut unknown: Vec<&String> = broker
        .static_settings()
        .keys()
        .chain(broker.dynamic_default_settings().keys())
        .chain(broker.dynamic_settings().keys())
        .filter(|key| broker_config(key).is_none())
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    for key in unknown {
        described.push(unknown_entry(key, broker_values(broker, key, true)));
    }
    described
}

/// The dynamic settings that all brokers of the cluster share.
pub fn describe_cluster_default(broker: &BrokerConfig) -> Vec<DescribedConfig> {
    let only_dynamic = |mut synonyms: Vec<Synonym>| {
        synonyms.retain(|synonym| synonym.source == ConfigSource::DynamicDefaultBroker);
        synonyms
    };
    let describe = |(key, value): (&String, &String)| match broker_config(key) {
        Some(def) => {
            let synonyms = only_dynamic(broker_values(broker, key, def.is_sensitive()));
            broker_entry(def, Some(as_written(def, value)), synonyms)
        }
        None => unknown_entry(key, only_dynamic(broker_values(broker, key, true))),
    };
    broker
        .dynamic_default_settings()
        .iter()
        .map(describe)
        .collect()
}

/// The settings of a group, given its overrides.
pub fn describe_group(broker: &BrokerConfig, overrides: &Settings) -> Vec<DescribedConfig> {
    let describe = |def: &'static ConfigDef| {
        let mut synonyms = match broker_synonym_of_group_config(def.name) {
            Some(name) => broker_values(broker, name, false),
            None => {
                let default = def.default_text().map(str::to_owned);
                vec![synonym(def.name, &default, ConfigSource::Default)]
            }
        };
        let mut value = synonyms
            .first()
            .and_then(|synonym| synonym.value.clone())
            .or_else(|| def.default_text().map(str::to_owned));
        if let Some(own) = overrides.get(def.name) {
            value = Some(as_written(def, own));
            synonyms.insert(0, synonym(def.name, &value, ConfigSource::Group));
        }
        entry(def, value, synonyms, false)
    };
    let is_set = |def: &ConfigDef| {
        let of_broker = broker_synonym_of_group_config(def.name);
        overrides.contains_key(def.name)
            || of_broker.is_some_and(|name| broker.setting(name).is_some())
    };
    GROUP_CONFIGS
        .iter()
        .filter(|&def| !def.internal || is_set(def))
        .map(describe)
        .collect()
}

/// The settings of a client metrics subscription, given its overrides.
pub fn describe_client_metrics(overrides: &Settings) -> Vec<DescribedConfig> {
    let describe = |def: &'static ConfigDef| match overrides.get(def.name) {
        Some(own) => {
            let value = Some(as_written(def, own));
            let synonyms = vec![synonym(def.name, &value, ConfigSource::ClientMetrics)];
            entry(def, value, synonyms, false)
        }
        None => entry(
            def,
            def.default_text().map(str::to_owned),
            Vec::new(),
            false,
        ),
    };
    CLIENT_METRICS_CONFIGS.iter().map(describe).collect()
}

fn synonym(name: &str, value: &Option<String>, source: ConfigSource) -> Synonym {
    Synonym {
        name: name.to_owned(),
        value: value.clone(),
        source,
    }
}

/// A value as Kafka prints it after parsing: lists without white space, booleans in lower case.
pub(crate) fn as_written(def: &ConfigDef, text: &str) -> String {
    match def.config_type {
        ConfigType::List => def.list_items(text).join(","),
        ConfigType::Boolean => text.trim().to_ascii_lowercase(),
        ConfigType::Int | ConfigType::Short | ConfigType::Long => text
            .trim()
            .parse::<i64>()
            .map_or_else(|_| text.to_owned(), |it| it.to_string()),
        _ => text.trim().to_owned(),
    }
}

fn entry(
    def: &ConfigDef,
    value: Option<String>,
    synonyms: Vec<Synonym>,
    is_read_only: bool,
) -> DescribedConfig {
    let is_sensitive = def.is_sensitive();
    DescribedConfig {
        name: def.name.to_owned(),
        value: value.filter(|_| !is_sensitive),
        source: synonyms
            .first()
            .map_or(ConfigSource::Default, |synonym| synonym.source),
        is_sensitive,
        is_read_only,
        synonyms,
        config_type: Some(def.config_type),
        documentation: crate::documentation::of(def, None),
    }
}

fn broker_entry(def: &ConfigDef, value: Option<String>, synonyms: Vec<Synonym>) -> DescribedConfig {
    let is_read_only = def.update_mode == crate::UpdateMode::ReadOnly;
    DescribedConfig {
        documentation: crate::documentation::of(def, topic_config_with_default(def.name)),
        ..entry(def, value, synonyms, is_read_only)
    }
}

fn unknown_entry(key: &str, synonyms: Vec<Synonym>) -> DescribedConfig {
    DescribedConfig {
        name: key.to_owned(),
        value: None,
        source: synonyms
            .first()
            .map_or(ConfigSource::Default, |synonym| synonym.source),
        is_sensitive: true,
        is_read_only: true,
        synonyms,
        config_type: None,
        documentation: None,
    }
}

#[cfg(test)]
mod tests;
