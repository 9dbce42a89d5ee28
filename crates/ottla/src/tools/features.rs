//! `features`: Kafka's `kafka-features.sh`.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use ottla_client::Admin;
use ottla_client::admin::FeatureUpdateType;
use ottla_metadata::{FEATURES, MetadataVersion};

use super::admin_client::connect_to_either;
use super::storage::{feature_dependencies, parse_feature, parse_release, print_version_mapping};
use super::{block_on, report_on_stderr};

/// Show the features of a cluster, and change their levels.
#[derive(Args, Debug)]
pub struct FeaturesArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS", group = "bootstrap")]
    bootstrap_server: Option<String>,
    /// Controllers to connect to first, instead of brokers.
    #[arg(long, value_name = "SERVERS", group = "bootstrap")]
    bootstrap_controller: Option<String>,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    #[command(subcommand)]
    command: FeatureCommand,
}

#[derive(Subcommand, Debug)]
enum FeatureCommand {
    /// Show the features and their levels.
    Describe {
        /// The node to query; by default any.
        #[arg(long, value_name = "ID")]
        node_id: Option<i32>,
    },
    /// Raise levels of features.
    Upgrade(LevelArgs),
    /// Lower levels of features.
    Downgrade {
        #[command(flatten)]
        levels: LevelArgs,
        /// Lower the levels even if metadata may be lost permanently.
        #[arg(long = "unsafe")]
        is_unsafe: bool,
    },
    /// Lower features to level 0.
    Disable {
        /// A feature; repeatable.
        #[arg(long, value_name = "FEATURE")]
        feature: Vec<String>,
        /// Disable the features even if metadata may be lost permanently.
        #[arg(long = "unsafe")]
        is_unsafe: bool,
        /// Check whether the change is possible, without making it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the feature levels that go with a release.
    VersionMapping {
        /// The release; by default that of a directory that is formatted without one.
        #[arg(long, value_name = "VERSION")]
        release_version: Option<String>,
    },
    /// Print the dependencies of feature levels.
    FeatureDependencies {
        /// The level of a feature; repeatable.
        #[arg(long, value_name = "FEATURE=LEVEL", required = true)]
        feature: Vec<String>,
    },
}

#[derive(Args, Debug)]
struct LevelArgs {
    /// Deprecated: write --release-version, or --feature metadata.version=LEVEL.
    #[arg(long, value_name = "VERSION", hide = true)]
    metadata: Option<String>,
    /// The release whose levels all features are set to.
    #[arg(long, value_name = "VERSION")]
    release_version: Option<String>,
    /// The level of a feature; repeatable.
    #[arg(long, value_name = "FEATURE=LEVEL")]
    feature: Vec<String>,
    /// Check whether the change is possible, without making it.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: FeaturesArgs) -> ExitCode {
    block_on(async { report_on_stderr(act(&args).await) })
}

async fn act(args: &FeaturesArgs) -> anyhow::Result<()> {
    let connect = async || {
        let (brokers, controllers) = (&args.bootstrap_server, &args.bootstrap_controller);
        let config = args.command_config.as_deref();
        let (brokers, controllers) = (brokers.as_deref(), controllers.as_deref());
        connect_to_either(brokers, controllers, config, "ottla-features").await
    };
    let downgrade = |is_unsafe: bool| {
        if is_unsafe {
            FeatureUpdateType::UnsafeDowngrade
        } else {
            FeatureUpdateType::SafeDowngrade
        }
    };
    match &args.command {
        FeatureCommand::VersionMapping { release_version } => {
            print_version_mapping(release_version.as_deref())
        }
        FeatureCommand::FeatureDependencies { feature } => feature_dependencies(feature),
        FeatureCommand::Describe { node_id } => {
            if let Some(id) = node_id.filter(|id| *id < 0) {
                bail!("Invalid node id {id}: must be non-negative.");
            }
            describe(&connect().await?, *node_id).await
        }
        FeatureCommand::Upgrade(levels) => {
            let how = FeatureUpdateType::Upgrade;
            let updates = levels.updates(how)?;
            update(&connect().await?, "upgrade", how, &updates, levels.dry_run).await
        }
        FeatureCommand::Downgrade { levels, is_unsafe } => {
            let how = downgrade(*is_unsafe);
            let updates = levels.updates(how)?;
            update(
                &connect().await?,
                "downgrade",
                how,
                &updates,
                levels.dry_run,
            )
            .await
        }
        FeatureCommand::Disable {
            feature,
            is_unsafe,
            dry_run,
        } => {
            let mut updates = Vec::new();
            for name in feature {
                add(&mut updates, name.clone(), 0)?;
            }
            let how = downgrade(*is_unsafe);
            update(&connect().await?, "disable", how, &updates, *dry_run).await
        }
    }
}

fn add(updates: &mut Vec<(String, i16)>, name: String, level: i16) -> anyhow::Result<()> {
    if updates.iter().any(|(other, _)| *other == name) {
        bail!("Feature {name} was specified more than once.");
    }
    updates.push((name, level));
    Ok(())
}

impl LevelArgs {
    fn updates(&self, how: FeatureUpdateType) -> anyhow::Result<Vec<(String, i16)>> {
        let mut updates = Vec::new();
        if let Some(release) = &self.release_version {
            if self.metadata.is_some() || !self.feature.is_empty() {
                bail!("Can not specify `release-version` with other feature flags.");
            }
            let version = parse_release(release)?;
            updates.push((
                MetadataVersion::FEATURE_NAME.to_owned(),
                version.feature_level(),
            ));
            for feature in FEATURES {
                let level = feature.default_level(version);
                // An upgrade to level 0 is skipped.
                if how != FeatureUpdateType::Upgrade || level > 0 {
                    updates.push((feature.name.to_owned(), level));
                }
            }
            return Ok(updates);
        }
        if let Some(metadata) = &self.metadata {
            println!(" `metadata` flag is deprecated and may be removed in a future release.");
            let level = parse_release(metadata)?.feature_level();
            updates.push((MetadataVersion::FEATURE_NAME.to_owned(), level));
        }
        for feature in &self.feature {
            let (name, level) = parse_feature(feature)?;
            // Rejected before a request is sent, as in
            // `org.apache.kafka.clients.admin.FeatureUpdate`.
            if level == 0 && how == FeatureUpdateType::Upgrade {
                bail!(
                    "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the provided \
                     maxVersionLevel:0 is < 1. Take `downgrade` or `disable` for {name}."
                );
            }
            if level < 0 {
                bail!("Cannot specify a negative version level, as {level} for {name} is.");
            }
            add(&mut updates, name, level)?;
        }
        Ok(updates)
    }
}

fn level_text(feature: &str, level: i16) -> String {
    if feature != MetadataVersion::FEATURE_NAME {
        return level.to_string();
    }
    match MetadataVersion::from_feature_level(level) {
        Some(version) => version.to_string(),
        None => format!("UNKNOWN {level}"),
    }
}

async fn describe(admin: &Admin, node: Option<i32>) -> anyhow::Result<()> {
    let mut response = admin.api_versions(node).await?;
    response
        .supported_features
        .sort_by(|left, right| left.name.cmp(&right.name));
    let epoch = match response.finalized_features_epoch {
        ..0 => "-".to_owned(),
        epoch => epoch.to_string(),
    };
    for feature in &response.supported_features {
        let name: &str = &feature.name;
        let finalized = response
            .finalized_features
            .iter()
            .find(|finalized| finalized.name == feature.name)
            .map_or(0, |finalized| finalized.max_version_level);
        println!(
            "Feature: {name:<40}  SupportedMinVersion: {:<15}  SupportedMaxVersion: {:<15}  \
             FinalizedVersionLevel: {:<15}  Epoch: {epoch}",
            level_text(name, feature.min_version),
            level_text(name, feature.max_version),
            level_text(name, finalized),
        );
    }
    Ok(())
}

async fn update(
    admin: &Admin,
    verb: &str,
    how: FeatureUpdateType,
    updates: &[(String, i16)],
    is_dry_run: bool,
) -> anyhow::Result<()> {
    if updates.is_empty() {
        bail!("You must specify at least one feature to {verb}");
    }
    let mut sorted = updates.to_vec();
    sorted.sort();
    let result = admin.update_features(updates, how, is_dry_run).await;
    for (feature, level) in &sorted {
        match &result {
            Ok(()) => {
                let is = if is_dry_run { "can be" } else { "was" };
                match verb {
                    "disable" => println!("{feature} {is} disabled."),
                    _ => println!("{feature} {is} {verb}d to {level}."),
                }
            }
            Err(error) => {
                let not = if is_dry_run { "Can not" } else { "Could not" };
                let what = match verb {
                    "disable" => format!("disable {feature}"),
                    _ => format!("{verb} {feature} to {level}"),
                };
                println!("{not} {what}. {}", error.broker_message());
            }
        }
    }
    // The cluster changes all features or none (KIP-1022).
    if result.is_err() {
        bail!("{0} out of {0} operation(s) failed.", updates.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_come_from_flags_or_a_release() {
        let args = |release: Option<&str>, features: &[&str]| LevelArgs {
            metadata: None,
            release_version: release.map(str::to_owned),
            feature: features.iter().map(|it| (*it).to_owned()).collect(),
            dry_run: false,
        };
        let up = FeatureUpdateType::Upgrade;
        assert_eq!(
            args(None, &["group.version=1"]).updates(up).unwrap(),
            [("group.version".to_owned(), 1)]
        );
        let release = args(Some("3.9"), &[]).updates(up).unwrap();
        assert_eq!(release[0], ("metadata.version".to_owned(), 21));
        assert!(release.iter().all(|(_, level)| *level > 0), "{release:?}");
        let release = args(Some("4.4"), &[]).updates(up).unwrap();
        assert!(
            release.contains(&("share.version".to_owned(), 2)),
            "{release:?}"
        );
        assert!(args(Some("3.9"), &["group.version=1"]).updates(up).is_err());
        assert!(
            args(None, &["a=1", "a=2"])
                .updates(up)
                .unwrap_err()
                .to_string()
                .contains("more than once")
        );
        let refused = |level: &str, how| {
            let updates = args(None, &[level]).updates(how);
            updates.unwrap_err().to_string()
        };
        assert!(refused("kraft.version=0", up).contains("Take `downgrade`"));
        assert!(refused("kraft.version=-1", up).contains("negative"));
        let down = FeatureUpdateType::SafeDowngrade;
        assert!(refused("kraft.version=-1", down).contains("negative"));
        let zero = args(None, &["group.version=0"]).updates(down);
        assert_eq!(zero.unwrap(), [("group.version".to_owned(), 0)]);
    }

    #[test]
    fn metadata_versions_have_names() {
        assert_eq!(level_text("metadata.version", 30), "4.3-IV0");
        assert_eq!(level_text("metadata.version", 99), "UNKNOWN 99");
        assert_eq!(level_text("group.version", 1), "1");
    }
}
