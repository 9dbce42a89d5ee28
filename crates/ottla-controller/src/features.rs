//! `UpdateFeatures`: raising and lowering feature levels.
//!
//! In Kafka: `FeatureControlManager`, `QuorumFeatures`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_metadata::feature::{ELIGIBLE_LEADER_REPLICAS_VERSION, FEATURES, KRAFT_VERSION};
use ottla_metadata::{Feature, MetadataVersion, SupportedFeature};
use ottla_protocol::messages::update_features_response::UpdatableFeatureResult;
use ottla_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord};
use ottla_types::ErrorCode;

use crate::alter_configs::elr_safety_records;
use crate::decision::{ApiError, ControllerContext, Decision};

/// The feature levels that this node supports, by name: those of Kafka 4.4.0.
pub fn local_supported_features() -> Vec<SupportedFeature> {
    let metadata_version = SupportedFeature {
        name: ByteString::from_static(MetadataVersion::FEATURE_NAME),
        min: MetadataVersion::MINIMUM.feature_level(),
        max: MetadataVersion::LATEST_PRODUCTION.feature_level(),
    };
    let mut features: Vec<_> = FEATURES
        .iter()
        .map(|feature| SupportedFeature {
            name: ByteString::from_static(feature.name),
            min: 0,
            max: feature.latest_production(),
        })
        .chain([metadata_version])
        .collect();
    features.sort_by(|left, right| left.name.cmp(&right.name));
    features
}

/// Each feature has an entry in the response of older versions. Newer versions have no entries.
pub fn update_features(
    context: &ControllerContext<'_>,
    request: &UpdateFeaturesRequest,
) -> Decision<UpdateFeaturesResponse> {
    let updates: BTreeMap<&str, (i16, UpgradeType)> = request
        .feature_updates
        .iter()
        .map(|update| {
            let upgrade_type = match (update.upgrade_type, update.allow_downgrade) {
                // Version 0 only has a flag that allows downgrades.
                (1, true) => UpgradeType::SafeDowngrade,
                (1, false) => UpgradeType::Upgrade,
                (2, _) => UpgradeType::SafeDowngrade,
                (3, _) => UpgradeType::UnsafeDowngrade,
                _ => UpgradeType::Unknown,
            };
            (&*update.feature, (update.max_version_level, upgrade_type))
        })
        .collect();
    match updated_levels(context, &updates) {
        Err(error) => Decision::unchanged(UpdateFeaturesResponse {
            error_code: error.code.code(),
            error_message: Some(ByteString::from(format!(
                "The update failed for all features since the following feature had an error: {}",
                error.message.unwrap_or_default()
            ))),
            ..Default::default()
        }),
        Ok(updated) => {
            let results = request
                .feature_updates
                .iter()
                .map(|update| UpdatableFeatureResult {
                    feature: update.feature.clone(),
                    error_message: None,
                    ..Default::default()
                });
            let response = UpdateFeaturesResponse {
                error_message: None,
                results: results.collect(),
                ..Default::default()
            };
            if request.validate_only {
                Decision::unchanged(response)
            } else {
                Decision {
                    records: updated.records,
                    kraft_version: updated.kraft_version,
                    response,
                }
            }
        }
    }
}

/// The result of a valid request.
#[derive(Default)]
struct Updated {
    records: Vec<MetadataRecord>,
    /// The level to which the quorum raises `kraft.version`.
    kraft_version: Option<i16>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UpgradeType {
    Unknown,
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

/// All or nothing: the first invalid update fails the whole request.
fn updated_levels(
    context: &ControllerContext<'_>,
    updates: &BTreeMap<&str, (i16, UpgradeType)>,
) -> Result<Updated, ApiError> {
    let mut proposed: BTreeMap<String, i16> = context
        .image
        .features
        .levels()
        .map(|(name, level)| (name.to_string(), level))
        .collect();
    let current_version = context.metadata_version().feature_level();
    proposed.insert(MetadataVersion::FEATURE_NAME.to_owned(), current_version);
    proposed.extend(
        updates
            .iter()
            .map(|(name, (level, _))| (name.to_string(), *level)),
    );

    let mut updated = Updated::default();
    let raises_elr = updates
        .get(ELIGIBLE_LEADER_REPLICAS_VERSION.name)
        .is_some_and(|(level, _)| *level > 0);
    if raises_elr {
        updated.records.extend(elr_safety_records(context));
    }
    for (name, (level, upgrade_type)) in updates {
        update_level(
            context,
            name,
            *level,
            *upgrade_type,
            &proposed,
            &mut updated,
        )?;
    }
    Ok(updated)
}

fn update_level(
    context: &ControllerContext<'_>,
    name: &str,
    level: i16,
    upgrade_type: UpgradeType,
    proposed: &BTreeMap<String, i16>,
    updated: &mut Updated,
) -> Result<(), ApiError> {
    let invalid = |message: &str| {
        Err(ApiError::new(
            ErrorCode::InvalidUpdateVersion,
            format!("Invalid update version {level} for feature {name}. {message}"),
        ))
    };
    if upgrade_type == UpgradeType::Unknown {
        return invalid("The controller does not support the given upgrade type.");
    }
    let current = context.finalized_level(name);
    if level < 0 {
        return invalid("A feature version cannot be less than 0.");
    }
    if let Some(reason) = reason_not_supported(context, name, level) {
        return invalid(&reason);
    }
    if level < current && upgrade_type == UpgradeType::Upgrade {
        return invalid(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe \
             or unsafe downgrade.",
        );
    }
    if level > current && upgrade_type != UpgradeType::Upgrade {
        return invalid("Can't downgrade to a newer version.");
    }
    if name == MetadataVersion::FEATURE_NAME {
        check_metadata_version(context, level, upgrade_type)?;
    } else if name == KRAFT_VERSION.name {
        return match upgrade_type {
            UpgradeType::Upgrade => {
                let is_raised = (context.kraft_version_upgrade)(level)
                    .map_err(|message| ApiError::new(ErrorCode::InvalidUpdateVersion, message))?;
                updated.kraft_version = is_raised.then_some(level);
                Ok(())
            }
            _ if level == current => Ok(()),
            _ => invalid("Can't downgrade the version of this feature."),
        };
    } else {
        let feature = Feature::from_name(name).filter(|feature| feature.level(level).is_some());
        let Some(feature) = feature else {
            return invalid(&format!("No feature:{name} with feature level {level}"));
        };
        if let Err(message) = feature.validate(level, proposed) {
            return invalid(&message);
        }
    }
    let record = MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: ByteString::from(name),
        feature_level: level,
        ..Default::default()
    });
    updated.records.push(record);
    Ok(())
}

/// Why some node of the cluster does not support the level: the first reason that is found.
fn reason_not_supported(context: &ControllerContext<'_>, name: &str, level: i16) -> Option<String> {
    let reason = |what: String, min: i16, max: i16| {
        if (min..=max).contains(&level) {
            None
        } else if max == 0 {
            Some(format!("{what} does not support this feature."))
        } else if min == max {
            Some(format!("{what} only supports versions {min}"))
        } else {
            Some(format!("{what} only supports versions {min}-{max}"))
        }
    };
    let range = |features: &[SupportedFeature]| {
        features
            .iter()
            .find(|feature| &*feature.name == name)
            .map_or((0, 0), |feature| (feature.min, feature.max))
    };
    let (min, max) = range(&local_supported_features());
    let local = format!("Local controller {}", context.config.node_id);
    reason(local, min, max)
        .or_else(|| {
            context.image.cluster.brokers().find_map(|broker| {
                let (min, max) = range(&broker.supported_features);
                reason(format!("Broker {}", broker.id), min, max)
            })
        })
        .or_else(|| {
            let others = context
                .image
                .cluster
                .controllers()
                .filter(|controller| controller.id.value() != context.config.node_id);
            others.into_iter().find_map(|controller| {
                let (min, max) = range(&controller.supported_features);
                reason(format!("Controller {}", controller.id), min, max)
            })
        })
        .or_else(|| {
            let missing = missing_controller(context)?;
            Some(format!(
                "controller {missing} has not registered, and may not support this feature"
            ))
        })
}

/// A configured voter whose supported features are unknown, because it has not registered.
fn missing_controller(context: &ControllerContext<'_>) -> Option<i32> {
    if !context
        .metadata_version()
        .is_controller_registration_supported()
    {
        return None;
    }
    let is_known = |id: i32| {
        let mut controllers = context.image.cluster.controllers();
        id == context.config.node_id || controllers.any(|it| it.id.value() == id)
    };
    let configured = context.config.controller_quorum_voters.iter();
    configured.map(|voter| voter.id).find(|&id| !is_known(id))
}

fn check_metadata_version(
    context: &ControllerContext<'_>,
    level: i16,
    upgrade_type: UpgradeType,
) -> Result<(), ApiError> {
    let current = context.metadata_version();
    let Some(target) = MetadataVersion::from_feature_level(level) else {
        return Err(ApiError::new(
            ErrorCode::InvalidUpdateVersion,
            format!(
                "Invalid metadata.version {level}. Valid versions are from {} to {}.",
                MetadataVersion::MINIMUM.feature_level(),
                MetadataVersion::LATEST_PRODUCTION.feature_level()
            ),
        ));
    };
    if target >= current || !MetadataVersion::is_metadata_changed_between(current, target) {
        return Ok(());
    }
    let message = match upgrade_type {
        UpgradeType::UnsafeDowngrade => {
            "Unsafe metadata downgrade is not supported in this version."
        }
        _ => {
            "Refusing to perform the requested downgrade because it might delete metadata information."
        }
    };
    Err(ApiError::new(
        ErrorCode::InvalidUpdateVersion,
        format!(
            "Unsupported metadata.version downgrade from {} to {}. {message}",
            current.feature_level(),
            target.feature_level()
        ),
    ))
}

#[cfg(test)]
mod tests;
