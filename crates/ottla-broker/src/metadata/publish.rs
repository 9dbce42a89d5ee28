//! What a new image means for this broker: partitions, settings of topics, and its own dynamic settings.
//!
//! Kafka does the same in `BrokerMetadataPublisher`, `DynamicConfigPublisher`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_metadata::{ConfigResource, ConfigResourceType, MetadataDelta, MetadataImage};
use ottla_types::BrokerId;

use crate::Broker;
use crate::net::follow_address_limits;

/// Puts a new image in force. Opens and closes logs: not for a thread that serves connections.
pub(crate) fn publish(broker: &Arc<Broker>, file_config: &BrokerConfig, delta: &MetadataDelta) {
    let is_of_this_broker = |resource: &ConfigResource| {
        resource.kind == ConfigResourceType::Broker
            && (resource.name.is_empty() || resource.name == broker.broker_id().to_string())
    };
    let has_new_settings = delta.configs.iter().any(is_of_this_broker);
    if has_new_settings {
        // Before the partitions: new ones are to be opened with the new defaults.
        apply_dynamic_settings(broker, file_config, &delta.after);
    }
    broker.on_metadata_changed(delta);
    if has_new_settings {
        broker.apply_topic_defaults();
    }
    if let Some(heartbeats) = broker.heartbeats()
        && is_registration_outdated(delta, broker.broker_id())
    {
        heartbeats.on_registration_outdated();
    }
}

/// Whether the controller knows none of this broker's directories though it could: it was registered at a level of
/// `metadata.version` that has none. Kafka: `BrokerRegistrationTracker`.
fn is_registration_outdated(delta: &MetadataDelta, id: BrokerId) -> bool {
    let version = delta.after.metadata_version();
    let is_changed = delta.before.metadata_version() != version || delta.brokers.contains(&id);
    let registration = delta.after.cluster.broker(id);
    is_changed
        && version.is_directory_assignment_supported()
        && registration.is_some_and(|it| it.directories.is_empty())
}

/// Puts the dynamic settings of an image in force and returns the configuration with them. What is not
/// accepted is left out and told.
pub(crate) fn apply_dynamic_settings(
    broker: &Arc<Broker>,
    file_config: &BrokerConfig,
    image: &MetadataImage,
) -> BrokerConfig {
    let (config, warnings) = effective_config(file_config, image, broker.broker_id());
    for warning in warnings {
        tracing::warn!("a dynamic setting of the broker is left out: {warning}");
    }
    if let Some(log_dirs) = broker.log_dirs()
        && log_dirs.set_cordoned(&config)
    {
        broker.dir_reports.on_changed();
    }
    broker.set_config(config.clone());
    follow_address_limits(broker);
    config
}

/// The file's configuration with the dynamic settings of the cluster and of this broker over it.
pub(crate) fn effective_config(
    file_config: &BrokerConfig,
    image: &MetadataImage,
    id: BrokerId,
) -> (BrokerConfig, Vec<ottla_config::Warning>) {
    let settings = |resource: &ConfigResource| -> BTreeMap<String, String> {
        image
            .configs
            .entries(resource)
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    };
    let cluster = settings(&ConfigResource::default_broker());
    let broker = settings(&ConfigResource::broker(id));
    if cluster.is_empty() && broker.is_empty() {
        return (file_config.clone(), Vec::new());
    }
    file_config.with_dynamic(&cluster, &broker)
}

#[cfg(test)]
mod tests {
    use ottla_metadata::{MetadataLoader, MetadataVersion, Provenance};
    use ottla_protocol::metadata_records::{
        FeatureLevelRecord, MetadataRecord, RegisterBrokerRecord,
    };
    use ottla_types::Uuid;

    use super::*;

    #[test]
    fn a_broker_without_directories_registers_again_when_the_level_knows_them() {
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
