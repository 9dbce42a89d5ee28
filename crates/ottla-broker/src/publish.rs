//! Applies a new image to this broker: partitions, topic settings, and the broker's dynamic
//! settings.
//!
//! Kafka: `BrokerMetadataPublisher`, `DynamicConfigPublisher`.

use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_context::effective_config;
use ottla_metadata::{ConfigResource, ConfigResourceType, MetadataDelta, MetadataImage};
use ottla_net::follow_address_limits;
use ottla_node::controller_thread::Publish;
use ottla_types::BrokerId;

use crate::Broker;

/// The function that the publisher thread calls with each committed change, one at a time.
pub(crate) fn publish_to(broker: &Arc<Broker>, file_config: BrokerConfig) -> Publish {
    let broker = Arc::downgrade(broker);
    Box::new(move |delta| {
        if let Some(broker) = broker.upgrade() {
            publish(&broker, &file_config, delta);
        }
    })
}

/// Applies a new image. Opens and closes logs, so it must not run on a thread that serves
/// connections.
fn publish(broker: &Arc<Broker>, file_config: &BrokerConfig, delta: &MetadataDelta) {
    let is_of_this_broker = |resource: &ConfigResource| {
        resource.kind == ConfigResourceType::Broker
            && (resource.name.is_empty() || resource.name == broker.broker_id().to_string())
    };
    if has_secrets(delta) {
        broker.context.on_secrets();
    }
    let has_new_settings = delta.configs.iter().any(is_of_this_broker);
    if has_new_settings {
        // Before the partitions, so that new ones are opened with the new defaults.
        apply_dynamic_settings(broker, file_config, &delta.after);
    }
    // Before the resources become visible.
    broker.authorizer.follow(delta);
    if delta.client_quotas {
        broker.follow_quotas(&delta.after.client_quotas);
    }
    if delta.delegation_tokens {
        broker.context.follow_tokens(&delta.after);
    }
    apply_image(broker, delta);
    if has_new_settings {
        broker.local_replicas.apply_topic_defaults();
    }
    if let Some(heartbeats) = broker.heartbeats()
        && is_registration_outdated(delta, broker.broker_id())
    {
        heartbeats.on_registration_outdated();
    }
}

/// Whether the node learns a secret from an image: the credentials of users and delegation tokens,
/// and the secret settings of all nodes, which the metadata log contains as they are.
fn has_secrets(delta: &MetadataDelta) -> bool {
    let after = &delta.after;
    let has_secret_setting = |resource: &ConfigResource| {
        let mut settings = after.configs.entries(resource);
        resource.kind == ConfigResourceType::Broker
            && settings.any(|(key, _)| BrokerConfig::is_secret_setting(key))
    };
    !after.kept.scram.is_empty()
        || !after.kept.delegation_tokens.is_empty()
        || delta.configs.iter().any(has_secret_setting)
}

/// Applies partitions, coordinators and image, in an order in which a client that sees a location
/// in the image finds the partition or coordinator there.
fn apply_image(broker: &Broker, delta: &MetadataDelta) {
    let (groups, transactions) = (&broker.groups, &broker.transactions);
    let share_groups = &broker.share_groups;
    let mut change = broker.local_replicas.begin_change(delta);
    groups.follow_leadership(groups, delta);
    transactions.follow_leadership(&transactions.coordinators, delta);
    share_groups.follow_leadership(&share_groups.coordinators, delta);
    broker.context.set_metadata(delta.after.clone());
    change.finish(delta);
    groups.follow_metadata(delta);
    transactions.follow_features(delta);
    share_groups.follow_metadata(delta);
    if let Some(remote_logs) = broker.remote_logs() {
        remote_logs.on_metadata_changed();
    }
}

impl Broker {
    /// Retries to open partitions that could not be opened when they were assigned, for example
    /// because a disk was full. Blocks.
    pub(crate) fn open_missing_partitions(&self) {
        let (groups, transactions) = (&self.groups, &self.transactions);
        let share_groups = &self.share_groups;
        self.local_replicas.open_missing_partitions(|replica| {
            groups.on_leader_opened(groups, replica);
            transactions.on_leader_opened(&transactions.coordinators, replica);
            share_groups.on_leader_opened(&share_groups.coordinators, replica);
        });
    }
}

/// Whether the registration of this broker contains no directories although the current level of
/// `metadata.version` supports them. Kafka: `BrokerRegistrationTracker`.
fn is_registration_outdated(delta: &MetadataDelta, id: BrokerId) -> bool {
    let version = delta.after.metadata_version();
    let is_changed = delta.before.metadata_version() != version || delta.brokers.contains(&id);
    let registration = delta.after.cluster.broker(id);
    is_changed
        && version.is_directory_assignment_supported()
        && registration.is_some_and(|it| it.directories.is_empty())
}

/// Applies the dynamic settings of an image and returns the resulting configuration. Invalid
/// settings are ignored and logged.
pub(crate) fn apply_dynamic_settings(
    broker: &Arc<Broker>,
    file_config: &BrokerConfig,
    image: &MetadataImage,
) -> BrokerConfig {
    let current = broker.context.config().clone();
    let (config, warnings) = effective_config(file_config, &current, image, broker.broker_id());
    for warning in warnings {
        tracing::warn!("a dynamic setting of the broker is ignored: {warning}");
    }
    if let Some(log_dirs) = broker.log_dirs()
        && log_dirs.set_cordoned(&config)
    {
        broker.dir_reports.on_changed();
    }
    broker.context.set_config(config.clone());
    follow_address_limits(&broker.network);
    broker.listeners.on_settings_changed();
    config
}

#[cfg(test)]
mod tests {
    use ottla_metadata::{MetadataLoader, MetadataVersion, Provenance};
    use ottla_protocol::metadata_records::{
        ConfigRecord, FeatureLevelRecord, MetadataRecord, RegisterBrokerRecord,
        UserScramCredentialRecord,
    };
    use ottla_types::Uuid;

    use super::*;

    #[test]
    fn users_and_the_secret_settings_of_any_node_are_secrets() {
        let mut loader = MetadataLoader::default();
        let mut learns_one = |record: MetadataRecord| {
            let delta = loader.load_batch(vec![record], Provenance::EMPTY).unwrap();
            has_secrets(&delta.unwrap())
        };
        let set = |name: &str| {
            MetadataRecord::Config(ConfigRecord {
                resource_type: ConfigResourceType::Broker.code(),
                resource_name: "7".into(),
                name: name.into(),
                value: Some("x".into()),
                ..Default::default()
            })
        };
        assert!(!learns_one(set("log.cleaner.threads")));
        assert!(learns_one(set("listener.name.a.ssl.keystore.password")));
        let user = UserScramCredentialRecord {
            name: "alice".into(),
            mechanism: 1,
            ..Default::default()
        };
        assert!(learns_one(MetadataRecord::UserScramCredential(user)));
    }

    #[test]
    fn a_broker_registers_its_directories_when_the_level_supports_them() {
        let mut loader = MetadataLoader::default();
        let mut is_outdated = |record: MetadataRecord| {
            let delta = loader.load_batch(vec![record], Provenance::EMPTY).unwrap();
            is_registration_outdated(&delta.unwrap(), BrokerId(4))
        };
        let level = |version: MetadataVersion| {
            MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name: MetadataVersion::FEATURE_NAME.into(),
                feature_level: version.feature_level(),
                ..Default::default()
            })
        };
        let register = |broker_id, log_dirs: &[u128]| {
            MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                broker_id,
                log_dirs: log_dirs.iter().map(|id| Uuid::from_u128(*id)).collect(),
                ..Default::default()
            })
        };
        let before = MetadataVersion::MINIMUM;
        assert!(!before.is_directory_assignment_supported());
        assert!(!is_outdated(level(before)));
        assert!(!is_outdated(register(4, &[])));
        assert!(is_outdated(level(MetadataVersion::LATEST_PRODUCTION)));
        assert!(!is_outdated(register(5, &[])));
        assert!(is_outdated(register(4, &[])));
        assert!(!is_outdated(register(4, &[77])));
    }
}
