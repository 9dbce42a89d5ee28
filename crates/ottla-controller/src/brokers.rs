//! Brokers and controllers: registration, heartbeats, fencing and controlled shutdown.
//!
//! The time of the last heartbeat is not metadata. The caller tracks it; this module decides about
//! a heartbeat, or about its absence (`fence_broker`).
//!
//! In Kafka: `ClusterControlManager`, `BrokerHeartbeatManager.calculateNextBrokerState`,
//! `ReplicationControlManager.handleBroker*`.

use std::collections::BTreeSet;

use bytestring::ByteString;
use ottla_metadata::feature::KRAFT_VERSION;
use ottla_metadata::{BrokerRegistration, MetadataVersion, PartitionRegistration};
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse, ControllerRegistrationRequest, ControllerRegistrationResponse,
    UnregisterBrokerRequest, UnregisterBrokerResponse, UnregisterControllerRequest,
    UnregisterControllerResponse,
};
use ottla_protocol::metadata_records::{
    BrokerRegistrationChangeRecord, MetadataRecord, RegisterBrokerRecord, RegisterControllerRecord,
    UnregisterBrokerRecord, UnregisterControllerRecord, register_broker_record,
    register_controller_record,
};
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, Offset, Uuid};

use crate::decision::{ApiError, ControllerContext, Decision};
use crate::partition_change::{BrokerEvent, directory_failure_updates, leader_and_isr_updates};

/// The listeners of a registration, for its record.
macro_rules! endpoints {
    ($request:ident, $record:ident::$Endpoint:ident) => {
        ($request.listeners.iter())
            .map(|listener| $record::$Endpoint {
                name: listener.name.clone(),
                host: listener.host.clone(),
                port: listener.port,
                security_protocol: listener.security_protocol,
                ..Default::default()
            })
            .collect()
    };
}

/// The features of a registration, for its record.
macro_rules! features {
    ($request:ident, $record:ident::$Feature:ident) => {
        ($request.features.iter())
            .map(|feature| $record::$Feature {
                name: feature.name.clone(),
                min_supported_version: feature.min_supported_version,
                max_supported_version: feature.max_supported_version,
                ..Default::default()
            })
            .collect()
    };
}

/// Registers a broker, or a new incarnation of one. `new_epoch` is the offset of the next record.
/// `has_valid_session` says whether the session of the registered incarnation is valid.
pub fn register_broker(
    context: &ControllerContext<'_>,
    request: &BrokerRegistrationRequest,
    cluster_id: &str,
    new_epoch: BrokerEpoch,
    has_valid_session: bool,
) -> Decision<BrokerRegistrationResponse> {
    let respond = |code: ErrorCode, epoch: BrokerEpoch| BrokerRegistrationResponse {
        error_code: code.code(),
        broker_epoch: epoch.value(),
        ..Default::default()
    };
    match registration_records(context, request, cluster_id, new_epoch, has_valid_session) {
        Ok((records, epoch)) => Decision::new(records, respond(ErrorCode::None, epoch)),
        Err(error) => Decision::unchanged(respond(error.code, BrokerEpoch::UNKNOWN)),
    }
}

fn registration_records(
    context: &ControllerContext<'_>,
    request: &BrokerRegistrationRequest,
    cluster_id: &str,
    new_epoch: BrokerEpoch,
    has_valid_session: bool,
) -> Result<(Vec<MetadataRecord>, BrokerEpoch), ApiError> {
    if &*request.cluster_id != cluster_id {
        return Err(ApiError::new(
            ErrorCode::InconsistentClusterId,
            format!(
                "Expected cluster ID {cluster_id}, but got cluster ID {}",
                request.cluster_id
            ),
        ));
    }
    let id = BrokerId(request.broker_id);
    let existing = context.image.cluster.broker(id);
    let is_same_incarnation =
        existing.is_some_and(|broker| broker.incarnation_id == request.incarnation_id);
    if existing.is_some() && has_valid_session && !is_same_incarnation {
        return Err(ApiError::new(
            ErrorCode::DuplicateBrokerRegistration,
            "Another broker is registered with that broker id. If the broker was recently restarted this \
             should self-resolve once the heartbeat manager expires the broker's session.",
        ));
    }
    if request.is_migrating_zk_broker {
        return Err(ApiError::new(
            ErrorCode::BrokerIdNotRegistered,
            "Controller does not support registering ZK brokers.",
        ));
    }
    let metadata_version = context.metadata_version();
    if metadata_version.is_directory_assignment_supported() {
        check_directories(context, request)?;
    }
    check_features(context, request)?;

    let mut record = RegisterBrokerRecord {
        broker_id: request.broker_id,
        incarnation_id: request.incarnation_id,
        end_points: endpoints!(request, register_broker_record::BrokerEndpoint),
        features: features!(request, register_broker_record::BrokerFeature),
        rack: request.rack.clone(),
        log_dirs: if metadata_version.is_directory_assignment_supported() {
            request.log_dirs.clone()
        } else {
            Vec::new()
        },
        ..Default::default()
    };
    let mut records = Vec::new();
    match existing {
        Some(existing) if is_same_incarnation => {
            record.fenced = existing.fenced;
            record.in_controlled_shutdown = existing.in_controlled_shutdown;
            record.broker_epoch = existing.epoch.value();
        }
        _ => {
            // Without eligible leader replicas (KIP-966), an unclean restart is handled like any
            // other departure. In both cases the broker must be unfenced again.
            let is_clean = existing
                .is_some_and(|existing| existing.epoch.value() == request.previous_broker_epoch);
            let event = if context.image.features.is_elr_enabled() && !is_clean {
                BrokerEvent::LostUnflushed(id)
            } else {
                BrokerEvent::Leaves(id)
            };
            records.extend(leader_and_isr_updates(context, event));
            record.fenced = true;
            record.broker_epoch = new_epoch.value();
        }
    }
    let epoch = BrokerEpoch(record.broker_epoch);
    records.push(MetadataRecord::RegisterBroker(record));
    Ok((records, epoch))
}

fn check_directories(
    context: &ControllerContext<'_>,
    request: &BrokerRegistrationRequest,
) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::new(ErrorCode::InvalidRegistration, message));
    if request.log_dirs.is_empty() {
        return invalid("No directories specified in request".to_owned());
    }
    if request
        .log_dirs
        .iter()
        .any(|&directory| is_reserved(directory))
    {
        return invalid("Reserved directory ID in request".to_owned());
    }
    if request.log_dirs.iter().collect::<BTreeSet<_>>().len() != request.log_dirs.len() {
        return invalid("Duplicate directory ID in request".to_owned());
    }
    for broker in context.image.cluster.brokers() {
        if broker.id.value() == request.broker_id {
            continue;
        }
        if let Some(directory) = request
            .log_dirs
            .iter()
            .find(|directory| broker.directories.contains(directory))
        {
            return invalid(format!(
                "Broker {} is already registered with directory {directory}",
                broker.id
            ));
        }
    }
    Ok(())
}

/// The first hundred ids are reserved.
fn is_reserved(id: Uuid) -> bool {
    u128::from_be_bytes(id.0) < 100
}

/// The broker must support every finalized level. A feature that it does not name is supported at
/// level 0 only.
fn check_features(
    context: &ControllerContext<'_>,
    request: &BrokerRegistrationRequest,
) -> Result<(), ApiError> {
    let check = |name: &str, (min, max): (i16, i16)| {
        let finalized = context.finalized_level(name);
        if (min..=max).contains(&finalized) {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::UnsupportedVersion,
            format!(
                "Unable to register because the broker does not support finalized version {finalized} of \
                 {name}. The broker wants a version between {min} and {max}, inclusive."
            ),
        ))
    };
    for feature in &request.features {
        let range = (feature.min_supported_version, feature.max_supported_version);
        check(&feature.name, range)?;
    }
    let is_named = |name: &str| request.features.iter().any(|it| &*it.name == name);
    if !is_named(MetadataVersion::FEATURE_NAME) {
        return Err(ApiError::new(
            ErrorCode::InvalidRegistration,
            "Request features do not contain 'metadata.version'",
        ));
    }
    let in_image = context.image.features.levels().map(|(name, _)| &**name);
    in_image
        .chain([KRAFT_VERSION.name])
        .filter(|name| !is_named(name))
        .try_for_each(|name| check(name, (0, 0)))
}

/// Registers a controller (KIP-919).
pub fn register_controller(
    context: &ControllerContext<'_>,
    request: &ControllerRegistrationRequest,
) -> Decision<ControllerRegistrationResponse> {
    if !context
        .metadata_version()
        .is_controller_registration_supported()
    {
        return Decision::unchanged(ControllerRegistrationResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            error_message: Some(ByteString::from_static(
                "The current MetadataVersion is too old to support controller registrations.",
            )),
            ..Default::default()
        });
    }
    let record = RegisterControllerRecord {
        controller_id: request.controller_id,
        incarnation_id: request.incarnation_id,
        zk_migration_ready: false,
        end_points: endpoints!(request, register_controller_record::ControllerEndpoint),
        features: features!(request, register_controller_record::ControllerFeature),
        ..Default::default()
    };
    Decision::new(
        vec![MetadataRecord::RegisterController(record)],
        ControllerRegistrationResponse::default(),
    )
}

/// The state of a broker on the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokerState {
    Fenced,
    Unfenced,
    ControlledShutdown,
    /// May stop: nothing depends on it any more.
    ShutdownNow,
}

/// Handles a heartbeat. `register_offset` is the offset of the broker's registration: a broker is
/// unfenced only after its metadata offset has reached it. `may_finish_shutdown` says whether every
/// active broker has applied the records of this broker's controlled shutdown.
pub fn heartbeat(
    context: &ControllerContext<'_>,
    request: &BrokerHeartbeatRequest,
    register_offset: Offset,
    may_finish_shutdown: bool,
) -> Decision<BrokerHeartbeatResponse> {
    let (id, epoch) = (
        BrokerId(request.broker_id),
        BrokerEpoch(request.broker_epoch),
    );
    let broker = match check_broker_epoch(context, id, epoch) {
        Ok(broker) => broker,
        Err(error) => {
            return Decision::unchanged(BrokerHeartbeatResponse::of_error(error.code));
        }
    };
    let is_caught_up = request.current_metadata_offset >= register_offset.value();
    let current = current_state(broker);
    let next = next_state(context, request, current, is_caught_up, may_finish_shutdown);
    let mut records = Vec::new();
    if next != current {
        match next {
            BrokerState::Fenced | BrokerState::ShutdownNow => {
                records.extend(fence_records(context, broker))
            }
            BrokerState::Unfenced => {
                records.push(registration_change(broker, |change| change.fenced = -1));
                records.extend(leader_and_isr_updates(context, BrokerEvent::Returns(id)));
            }
            BrokerState::ControlledShutdown => {
                records.push(registration_change(broker, |change| {
                    change.in_controlled_shutdown = 1
                }));
                records.extend(leader_and_isr_updates(context, BrokerEvent::Leaves(id)));
            }
        }
    }
    records.extend(directory_records(context, request, broker));
    let response = BrokerHeartbeatResponse {
        is_caught_up,
        is_fenced: matches!(next, BrokerState::Fenced | BrokerState::ShutdownNow),
        should_shut_down: next == BrokerState::ShutdownNow,
        ..Default::default()
    };
    Decision::new(records, response)
}

fn current_state(broker: &BrokerRegistration) -> BrokerState {
    if broker.fenced {
        BrokerState::Fenced
    } else if broker.in_controlled_shutdown {
        BrokerState::ControlledShutdown
    } else {
        BrokerState::Unfenced
    }
}

fn next_state(
    context: &ControllerContext<'_>,
    request: &BrokerHeartbeatRequest,
    current: BrokerState,
    is_caught_up: bool,
    may_finish_shutdown: bool,
) -> BrokerState {
    let leads_something = || {
        let broker = BrokerId(request.broker_id);
        let mut in_sync = context.image.topics.in_sync_of(broker);
        in_sync.any(|(_, _, partition)| partition.leader == broker)
    };
    match current {
        BrokerState::Fenced if request.want_shut_down => BrokerState::ShutdownNow,
        BrokerState::Fenced if !request.want_fence && is_caught_up => BrokerState::Unfenced,
        BrokerState::Fenced => BrokerState::Fenced,
        BrokerState::Unfenced if request.want_fence && request.want_shut_down => {
            BrokerState::ShutdownNow
        }
        BrokerState::Unfenced if request.want_fence => BrokerState::Fenced,
        BrokerState::Unfenced if request.want_shut_down && leads_something() => {
            BrokerState::ControlledShutdown
        }
        BrokerState::Unfenced if request.want_shut_down => BrokerState::ShutdownNow,
        BrokerState::Unfenced => BrokerState::Unfenced,
        BrokerState::ControlledShutdown if !leads_something() && may_finish_shutdown => {
            BrokerState::ShutdownNow
        }
        BrokerState::ControlledShutdown => BrokerState::ControlledShutdown,
        BrokerState::ShutdownNow => BrokerState::ShutdownNow,
    }
}

/// The records for changed directories. Partitions in failed directories get new leaders, and
/// cordoned directories get no new replicas.
fn directory_records(
    context: &ControllerContext<'_>,
    request: &BrokerHeartbeatRequest,
    broker: &BrokerRegistration,
) -> Vec<MetadataRecord> {
    let mut records = Vec::new();
    let metadata_version = context.metadata_version();
    let has_new_offline = broker
        .directories
        .iter()
        .any(|directory| request.offline_log_dirs.contains(directory));
    if metadata_version.is_directory_assignment_supported() && has_new_offline {
        let is_on_offline = |partition: &PartitionRegistration| {
            let directory = partition.directory(broker.id);
            directory.is_some_and(|directory| request.offline_log_dirs.contains(&directory))
        };
        records.extend(directory_failure_updates(
            context,
            broker.id,
            |_, _, partition| is_on_offline(partition),
        ));
        let online = broker
            .directories
            .iter()
            .copied()
            .filter(|directory| !request.offline_log_dirs.contains(directory))
            .collect();
        records.push(registration_change(broker, |change| {
            change.log_dirs = online
        }));
    }
    if metadata_version.is_cordoned_log_dirs_supported()
        && let Some(cordoned) = &request.cordoned_log_dirs
    {
        let as_set = |directories: &[Uuid]| directories.iter().copied().collect::<BTreeSet<_>>();
        let is_known = broker
            .cordoned_directories
            .as_ref()
            .is_some_and(|current| as_set(current) == as_set(cordoned));
        if !is_known {
            records.push(registration_change(broker, |change| {
                change.cordoned_log_dirs = Some(cordoned.clone());
            }));
        }
    }
    records
}

/// Fences a broker whose session has expired. Returns no records if it is fenced already.
pub fn fence_broker(context: &ControllerContext<'_>, id: BrokerId) -> Vec<MetadataRecord> {
    match context.image.cluster.broker(id) {
        Some(broker) if !broker.fenced => fence_records(context, broker),
        _ => Vec::new(),
    }
}

fn fence_records(
    context: &ControllerContext<'_>,
    broker: &BrokerRegistration,
) -> Vec<MetadataRecord> {
    let mut records = leader_and_isr_updates(context, BrokerEvent::Leaves(broker.id));
    if !broker.fenced {
        records.push(registration_change(broker, |change| change.fenced = 1));
    }
    records
}

pub fn unregister_broker(
    context: &ControllerContext<'_>,
    request: &UnregisterBrokerRequest,
) -> Decision<UnregisterBrokerResponse> {
    let id = BrokerId(request.broker_id);
    let Some(broker) = context.image.cluster.broker(id) else {
        return Decision::unchanged(UnregisterBrokerResponse {
            error_code: ErrorCode::BrokerIdNotRegistered.code(),
            error_message: Some(ByteString::from(format!(
                "Broker ID {id} is not currently registered"
            ))),
            ..Default::default()
        });
    };
    let mut records = leader_and_isr_updates(context, BrokerEvent::Leaves(id));
    records.push(MetadataRecord::UnregisterBroker(UnregisterBrokerRecord {
        broker_id: id.value(),
        broker_epoch: broker.epoch.value(),
        ..Default::default()
    }));
    Decision::new(records, UnregisterBrokerResponse::default())
}

/// The active controller cannot be unregistered. A controller that still runs registers again.
pub fn unregister_controller(
    context: &ControllerContext<'_>,
    request: &UnregisterControllerRequest,
) -> Decision<UnregisterControllerResponse> {
    let refused = |error: ErrorCode, message: String| {
        Decision::unchanged(UnregisterControllerResponse {
            error_code: error.code(),
            error_message: Some(ByteString::from(message)),
            ..Default::default()
        })
    };
    let id = BrokerId(request.controller_id);
    if id.value() == context.config.node_id {
        let message = "Controller cannot unregister itself while it is active.";
        return refused(ErrorCode::InvalidRequest, message.to_owned());
    }
    if !context
        .metadata_version()
        .is_controller_unregistration_supported()
    {
        let message =
            "The current MetadataVersion is too old to support controller unregistration.";
        return refused(ErrorCode::UnsupportedVersion, message.to_owned());
    }
    if context.image.cluster.controller(id).is_none() {
        let message = format!("Controller ID {id} is not currently registered.");
        return refused(ErrorCode::ControllerIdNotRegistered, message);
    }
    let record = UnregisterControllerRecord {
        controller_id: id.value(),
        ..Default::default()
    };
    Decision::new(
        vec![MetadataRecord::UnregisterController(record)],
        UnregisterControllerResponse::default(),
    )
}

fn registration_change(
    broker: &BrokerRegistration,
    set: impl FnOnce(&mut BrokerRegistrationChangeRecord),
) -> MetadataRecord {
    let mut change = BrokerRegistrationChangeRecord {
        broker_id: broker.id.value(),
        broker_epoch: broker.epoch.value(),
        ..Default::default()
    };
    set(&mut change);
    MetadataRecord::BrokerRegistrationChange(change)
}

pub(crate) fn check_broker_epoch<'a>(
    context: &ControllerContext<'a>,
    id: BrokerId,
    epoch: BrokerEpoch,
) -> Result<&'a BrokerRegistration, ApiError> {
    let broker = context.image.cluster.broker(id).ok_or_else(|| {
        ApiError::new(
            ErrorCode::StaleBrokerEpoch,
            format!("No broker registration found for broker id {id}"),
        )
    })?;
    if broker.epoch != epoch {
        return Err(ApiError::new(
            ErrorCode::StaleBrokerEpoch,
            format!(
                "Expected broker epoch {}, but got broker epoch {epoch}",
                broker.epoch
            ),
        ));
    }
    Ok(broker)
}

#[cfg(test)]
mod tests;
