//! The effective configuration: the properties file, overlaid with the dynamic settings in the
//! cluster image.
//!
//! Kafka: `DynamicBrokerConfig`.

use std::collections::BTreeMap;

use ottla_config::{BrokerConfig, Warning};
use ottla_metadata::{ConfigResource, MetadataImage};
use ottla_types::BrokerId;

/// Returns the configuration of the file, overlaid with the dynamic settings of the cluster and
/// then of this broker, and a warning for each dynamic setting that is not accepted. `current` is the
/// configuration so far: a setting whose variable has no value keeps its value.
pub fn effective_config(
    file_config: &BrokerConfig,
    current: &BrokerConfig,
    image: &MetadataImage,
    id: BrokerId,
) -> (BrokerConfig, Vec<Warning>) {
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
    current.with_dynamic(&cluster, &broker)
}
