//! The registered brokers and controllers: their listeners, supported features, and whether they are
//! fenced.
//!
//! In Kafka: `ClusterImage`, `BrokerRegistration`, `ControllerRegistration`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::metadata_records::{
    BrokerRegistrationChangeRecord, MetadataRecord, RegisterBrokerRecord, RegisterControllerRecord,
    register_broker_record,
};
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, Uuid};
use rpds::RedBlackTreeMapSync;

use crate::{MetadataVersion, ReplayError};

/// The address of a broker or controller for one listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The listener's name, as in `listeners`: `PLAINTEXT`, `CONTROLLER`.
    pub name: ByteString,
    pub host: ByteString,
    pub port: u16,
    /// 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The supported levels of one feature, both ends inclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupportedFeature {
    pub name: ByteString,
    pub min: i16,
    pub max: i16,
}

/// The endpoints of the record of a broker or a controller.
macro_rules! endpoints {
    ($record:ident) => {
        ($record.end_points.iter())
            .map(|endpoint| Endpoint {
                name: endpoint.name.clone(),
                host: endpoint.host.clone(),
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect()
    };
}

/// The features that the record of a broker or a controller supports.
macro_rules! supported_features {
    ($record:ident) => {
        ($record.features.iter())
            .map(|feature| SupportedFeature {
                name: feature.name.clone(),
                min: feature.min_supported_version,
                max: feature.max_supported_version,
            })
            .collect()
    };
}

/// A registered broker in its current state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerRegistration {
    pub id: BrokerId,
    pub epoch: BrokerEpoch,
    /// Random for each start of the broker process.
    pub incarnation_id: Uuid,
    pub listeners: Vec<Endpoint>,
    pub supported_features: Vec<SupportedFeature>,
    pub rack: Option<ByteString>,
    /// A fenced broker leads no partition and is not visible to clients.
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    pub is_migrating_zk_broker: bool,
    /// The directories that are online, sorted.
    pub directories: Vec<DirectoryId>,
    /// Directories that get no new replicas (KIP-1066); `None` until the broker has reported them.
    pub cordoned_directories: Option<Vec<DirectoryId>>,
}

impl BrokerRegistration {
    pub fn from_record(record: &RegisterBrokerRecord) -> BrokerRegistration {
        let mut directories = record.log_dirs.clone();
        directories.sort();
        BrokerRegistration {
            id: BrokerId(record.broker_id),
            epoch: BrokerEpoch(record.broker_epoch),
            incarnation_id: record.incarnation_id,
            listeners: endpoints!(record),
            supported_features: supported_features!(record),
            rack: record.rack.clone(),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            is_migrating_zk_broker: record.is_migrating_zk_broker,
            directories,
            cordoned_directories: record.cordoned_log_dirs.clone(),
        }
    }

    /// The registration record for the current state of this broker, as far as `metadata_version`
    /// can express it.
    pub fn to_record(&self, metadata_version: MetadataVersion) -> RegisterBrokerRecord {
        RegisterBrokerRecord {
            broker_id: self.id.value(),
            is_migrating_zk_broker: self.is_migrating_zk_broker
                && metadata_version >= MetadataVersion::IBP_3_4_IV0,
            incarnation_id: self.incarnation_id,
            broker_epoch: self.epoch.value(),
            end_points: self
                .listeners
                .iter()
                .map(|listener| register_broker_record::BrokerEndpoint {
                    name: listener.name.clone(),
                    host: listener.host.clone(),
                    port: listener.port,
                    security_protocol: listener.security_protocol,
                    ..Default::default()
                })
                .collect(),
            features: self
                .supported_features
                .iter()
                .map(|feature| register_broker_record::BrokerFeature {
                    name: feature.name.clone(),
                    min_supported_version: feature.min,
                    max_supported_version: feature.max,
                    ..Default::default()
                })
                .collect(),
            rack: self.rack.clone(),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: if metadata_version.is_directory_assignment_supported() {
                self.directories.clone()
            } else {
                Vec::new()
            },
            cordoned_log_dirs: self
                .cordoned_directories
                .clone()
                .filter(|_| metadata_version.is_cordoned_log_dirs_supported()),
            ..Default::default()
        }
    }

    pub fn listener(&self, name: &str) -> Option<&Endpoint> {
        self.listeners
            .iter()
            .find(|listener| &*listener.name == name)
    }

    /// Whether the broker can hold a replica in the directory: it is online, or not assigned yet.
    pub fn has_online_directory(&self, directory: DirectoryId) -> bool {
        if directory == Uuid::DIRECTORY_UNASSIGNED || directory == Uuid::DIRECTORY_MIGRATING {
            return true;
        }
        if directory == Uuid::DIRECTORY_LOST {
            return false;
        }
        // A broker from before KIP-858 does not report its directories.
        self.directories.is_empty() || self.directories.contains(&directory)
    }

    pub fn has_uncordoned_directories(&self) -> bool {
        match &self.cordoned_directories {
            Some(cordoned) if !self.directories.is_empty() => self
                .directories
                .iter()
                .any(|directory| !cordoned.contains(directory)),
            _ => true,
        }
    }

    fn changed_by(
        &self,
        change: &BrokerRegistrationChangeRecord,
    ) -> Result<BrokerRegistration, ReplayError> {
        let invalid = |field: &'static str, value: i8| ReplayError::InvalidBrokerChange {
            broker: self.id,
            field,
            value,
        };
        let mut next = self.clone();
        match change.fenced {
            -1 => next.fenced = false,
            0 => {}
            1 => next.fenced = true,
            other => return Err(invalid("fenced", other)),
        }
        match change.in_controlled_shutdown {
            0 => {}
            1 => next.in_controlled_shutdown = true,
            other => return Err(invalid("inControlledShutdown", other)),
        }
        if !change.log_dirs.is_empty() {
            next.directories = change.log_dirs.clone();
            next.directories.sort();
        }
        if let Some(cordoned) = &change.cordoned_log_dirs {
            next.cordoned_directories = Some(cordoned.clone());
        }
        Ok(next)
    }
}

/// A registered controller (KIP-919).
#[derive(Clone, PartialEq, Debug)]
pub struct ControllerRegistration {
    pub id: BrokerId,
    pub listeners: Vec<Endpoint>,
    pub supported_features: Vec<SupportedFeature>,
    record: RegisterControllerRecord,
}

impl ControllerRegistration {
    pub fn listener(&self, name: &str) -> Option<&Endpoint> {
        self.listeners
            .iter()
            .find(|listener| &*listener.name == name)
    }

    fn from_record(record: &RegisterControllerRecord) -> ControllerRegistration {
        ControllerRegistration {
            id: BrokerId(record.controller_id),
            listeners: endpoints!(record),
            supported_features: supported_features!(record),
            record: record.clone(),
        }
    }

    pub fn incarnation_id(&self) -> Uuid {
        self.record.incarnation_id
    }

    pub fn to_record(&self) -> RegisterControllerRecord {
        self.record.clone()
    }
}

/// All registered nodes, by id.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClusterImage {
    brokers: RedBlackTreeMapSync<BrokerId, Arc<BrokerRegistration>>,
    controllers: RedBlackTreeMapSync<BrokerId, Arc<ControllerRegistration>>,
}

impl ClusterImage {
    pub fn is_empty(&self) -> bool {
        self.brokers.is_empty() && self.controllers.is_empty()
    }

    pub fn broker(&self, id: BrokerId) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&id)
    }

    /// `BrokerEpoch::UNKNOWN` for a broker that is not registered.
    pub fn broker_epoch(&self, id: BrokerId) -> BrokerEpoch {
        self.broker(id)
            .map_or(BrokerEpoch::UNKNOWN, |broker| broker.epoch)
    }

    /// In the order of their ids.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.brokers.values()
    }

    /// The brokers visible to clients, in order of their IDs.
    pub fn unfenced_brokers(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.brokers().filter(|broker| !broker.fenced)
    }

    pub fn is_broker_active(&self, id: BrokerId) -> bool {
        self.broker(id)
            .is_some_and(|broker| !broker.fenced && !broker.in_controlled_shutdown)
    }

    pub fn controller(&self, id: BrokerId) -> Option<&Arc<ControllerRegistration>> {
        self.controllers.get(&id)
    }

    pub fn controllers(&self) -> impl Iterator<Item = &Arc<ControllerRegistration>> {
        self.controllers.values()
    }

    pub(crate) fn register_broker(&mut self, record: &RegisterBrokerRecord) {
        self.insert(BrokerRegistration::from_record(record));
    }

    pub(crate) fn register_controller(&mut self, record: &RegisterControllerRecord) {
        let controller = ControllerRegistration::from_record(record);
        self.controllers
            .insert_mut(controller.id, Arc::new(controller));
    }

    pub(crate) fn unregister_controller(&mut self, id: BrokerId) {
        self.controllers.remove_mut(&id);
    }

    pub(crate) fn unregister_broker(&mut self, id: BrokerId) {
        self.brokers.remove_mut(&id);
    }

    pub(crate) fn set_fenced(
        &mut self,
        id: BrokerId,
        epoch: BrokerEpoch,
        fenced: bool,
    ) -> Result<(), ReplayError> {
        let current = self.registration(id, epoch)?;
        if current.fenced != fenced {
            let mut next = BrokerRegistration::clone(current);
            next.fenced = fenced;
            self.insert(next);
        }
        Ok(())
    }

    /// Whether anything changed.
    pub(crate) fn change_broker(
        &mut self,
        change: &BrokerRegistrationChangeRecord,
    ) -> Result<bool, ReplayError> {
        let current =
            self.registration(BrokerId(change.broker_id), BrokerEpoch(change.broker_epoch))?;
        let next = current.changed_by(change)?;
        let changed = next != **current;
        if changed {
            self.insert(next);
        }
        Ok(changed)
    }

    /// The records of a snapshot: brokers, then controllers.
    pub(crate) fn write(
        &self,
        metadata_version: MetadataVersion,
        records: &mut Vec<MetadataRecord>,
    ) {
        for broker in self.brokers() {
            records.push(MetadataRecord::RegisterBroker(
                broker.to_record(metadata_version),
            ));
        }
        if metadata_version.is_controller_registration_supported() {
            for controller in self.controllers() {
                records.push(MetadataRecord::RegisterController(controller.to_record()));
            }
        }
    }

    fn insert(&mut self, broker: BrokerRegistration) {
        self.brokers.insert_mut(broker.id, Arc::new(broker));
    }

    fn registration(
        &self,
        id: BrokerId,
        epoch: BrokerEpoch,
    ) -> Result<&Arc<BrokerRegistration>, ReplayError> {
        let broker = self.broker(id).ok_or(ReplayError::UnknownBroker(id))?;
        if broker.epoch != epoch {
            return Err(ReplayError::BrokerEpochMismatch {
                broker: id,
                registered: broker.epoch,
                given: epoch,
            });
        }
        Ok(broker)
    }
}
