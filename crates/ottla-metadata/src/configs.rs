//! Settings that were changed at runtime: of topics, brokers, groups and client metrics.
//!
//! Contains only explicitly set values; `ottla-config` resolves defaults and validates values. Unknown
//! keys are kept, so that a snapshot writes them again.
//!
//! In Kafka: `ConfigurationsImage`, `ConfigurationImage`, `ConfigResource`.

use std::fmt;

use bytestring::ByteString;
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord};
use ottla_types::{BrokerId, named_enum};
use rpds::RedBlackTreeMapSync;

use crate::ReplayError;

named_enum! {
    /// The types of resources that have settings, with Kafka's codes.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(i8)]
    pub enum ConfigResourceType {
        Topic = 2 => "TOPIC",
        Broker = 4 => "BROKER",
        BrokerLogger = 8 => "BROKER_LOGGER",
        ClientMetrics = 16 => "CLIENT_METRICS",
        Group = 32 => "GROUP",
    }
}

impl ConfigResourceType {
    pub fn from_code(code: i8) -> Option<ConfigResourceType> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    pub fn code(self) -> i8 {
        self as i8
    }
}

/// The resource that a setting belongs to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConfigResource {
    pub kind: ConfigResourceType,
    /// A topic or group name, or a broker id; empty for the default of all brokers.
    pub name: ByteString,
}

impl ConfigResource {
    pub fn new(kind: ConfigResourceType, name: impl Into<ByteString>) -> ConfigResource {
        ConfigResource {
            kind,
            name: name.into(),
        }
    }

    pub fn topic(name: impl Into<ByteString>) -> ConfigResource {
        ConfigResource::new(ConfigResourceType::Topic, name)
    }

    pub fn broker(id: BrokerId) -> ConfigResource {
        ConfigResource::new(ConfigResourceType::Broker, id.to_string())
    }

    /// The dynamic default of all brokers.
    pub fn default_broker() -> ConfigResource {
        ConfigResource::new(ConfigResourceType::Broker, "")
    }

    pub fn group(name: impl Into<ByteString>) -> ConfigResource {
        ConfigResource::new(ConfigResourceType::Group, name)
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ConfigResource(type={}, name='{}')",
            self.kind.name(),
            self.name
        )
    }
}

/// The settings of one resource, in the order of the keys.
pub type ConfigEntries = RedBlackTreeMapSync<ByteString, ByteString>;

/// The settings by resource. A resource without settings has no entry.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ConfigurationsImage {
    resources: RedBlackTreeMapSync<ConfigResource, ConfigEntries>,
}

impl ConfigurationsImage {
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    pub fn resource(&self, resource: &ConfigResource) -> Option<&ConfigEntries> {
        self.resources.get(resource)
    }

    pub fn value(&self, resource: &ConfigResource, key: &str) -> Option<&ByteString> {
        self.resource(resource)?.get(key)
    }

    /// The settings of a resource, in the order of the keys.
    pub fn entries(
        &self,
        resource: &ConfigResource,
    ) -> impl Iterator<Item = (&ByteString, &ByteString)> {
        self.resource(resource)
            .into_iter()
            .flat_map(|entries| entries.iter())
    }

    pub fn resources(&self) -> impl Iterator<Item = (&ConfigResource, &ConfigEntries)> {
        self.resources.iter()
    }

    pub(crate) fn change(&mut self, record: &ConfigRecord) -> Result<ConfigResource, ReplayError> {
        let kind = ConfigResourceType::from_code(record.resource_type)
            .ok_or(ReplayError::UnknownConfigResourceType(record.resource_type))?;
        let resource = ConfigResource::new(kind, record.resource_name.clone());
        match &record.value {
            Some(value) => {
                if !self.resources.contains_key(&resource) {
                    self.resources
                        .insert_mut(resource.clone(), ConfigEntries::new_sync());
                }
                if let Some(entries) = self.resources.get_mut(&resource) {
                    entries.insert_mut(record.name.clone(), value.clone());
                }
            }
            None => {
                if let Some(entries) = self.resources.get_mut(&resource) {
                    entries.remove_mut(&record.name);
                    if entries.is_empty() {
                        self.resources.remove_mut(&resource);
                    }
                }
            }
        }
        Ok(resource)
    }

    /// Whether anything was set.
    pub(crate) fn remove(&mut self, resource: &ConfigResource) -> bool {
        self.resources.remove_mut(resource)
    }

    pub(crate) fn write(&self, records: &mut Vec<MetadataRecord>) {
        for (resource, entries) in self.resources() {
            for (name, value) in entries {
                records.push(MetadataRecord::Config(ConfigRecord {
                    resource_type: resource.kind.code(),
                    resource_name: resource.name.clone(),
                    name: name.clone(),
                    value: Some(value.clone()),
                    ..Default::default()
                }));
            }
        }
    }
}
