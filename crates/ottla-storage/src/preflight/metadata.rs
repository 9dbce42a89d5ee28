//! The cluster according to its metadata log: the newest snapshot and the records after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ottla_config::{
    BrokerConfig, ConfigDef, Support, UpdateMode, broker_config, group_config, topic_config,
};
use ottla_log::checkpoint::MetaProperties;
use ottla_log::whole_segments;
use ottla_metadata::feature::KRAFT_VERSION;
use ottla_metadata::{
    ConfigResource, ConfigResourceType, Feature, MetadataImage, MetadataVersion, Provenance,
};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{ElectionState, SnapshotId};
use ottla_sync::fs;
use ottla_types::{BrokerId, Offset};

use super::log_scan;
use super::look::{Look, count, some_of};
use crate::metadata::forced_mark::forced_offset;
use crate::metadata::metadata_log::{LoadedMetadata, METADATA_DIR, QUORUM_STATE_FILE};
use crate::metadata::record_batches::{MetadataBatch, MetadataBatchContent};
use crate::metadata::snapshot_file::{BOOTSTRAP_FILE, read_snapshot};
use crate::metadata::static_voters::static_voters;

/// Why the metadata cannot be read further.
enum Unreadable {
    /// An unknown level of `metadata.version`.
    Level(i16),
    Other(String),
}

impl From<String> for Unreadable {
    fn from(reason: String) -> Self {
        Unreadable::Other(reason)
    }
}

/// Examines the metadata log of a formatted node. Returns the image if it could be read.
pub(super) fn examine(config: &BrokerConfig, own: &MetaProperties, look: &mut Look) {
    let metadata_log_dir = Path::new(&config.metadata_log_dir);
    let dir = metadata_log_dir.join(METADATA_DIR);
    let place = dir.display().to_string();
    let loaded = match read(metadata_log_dir, &dir) {
        Ok(loaded) => loaded,
        Err(Unreadable::Level(level)) => {
            refuse_level(&place, level, look);
            return;
        }
        Err(Unreadable::Other(reason)) => {
            let change =
                "restore it from a copy, or start the Kafka that wrote it to see what it says";
            look.refuse("metadata log", &place, reason, change);
            return;
        }
    };
    let image = loaded.loader.image().clone();
    look.facts.metadata_version = image.features.metadata_version().map(|it| it.to_string());
    look.facts.topics = image.topics.len();
    look.facts.partitions = image.topics.partition_count();
    features(&image, &place, look);
    // A node with one role is part of a larger cluster.
    if config.is_combined() {
        quorum(config, own, &loaded, &place, look);
        brokers(config, &image, &place, look);
    }
    security(config, &image, &place, look);
    dynamic_settings(config, &image, look);
    topic_settings(&image, look);
    tiered_topics(config, &image, look);
    group_settings(&image, look);
}

fn refuse_level(place: &str, level: i16, look: &mut Look) {
    let (minimum, latest) = (MetadataVersion::MINIMUM, MetadataVersion::LATEST_PRODUCTION);
    let range = format!(
        "{} ({minimum}) to {} ({latest})",
        minimum.feature_level(),
        latest.feature_level()
    );
    let (what, change) = if level < minimum.feature_level() {
        (
            format!("metadata.version has level {level}; supported are {range}"),
            "raise it with Kafka first: kafka-features upgrade --metadata 3.9",
        )
    } else {
        (
            format!(
                "metadata.version has level {level}, of a Kafka newer than 4.4; supported are {range}"
            ),
            "lower it with that Kafka first, if it can: kafka-features downgrade --metadata 4.4",
        )
    };
    look.refuse("metadata.version", place, what, change);
}

/// Reads the newest snapshot and the log after it, as a start would, without opening the log.
fn read(metadata_log_dir: &Path, dir: &Path) -> Result<LoadedMetadata, Unreadable> {
    let mut loaded = LoadedMetadata::new(election_state(dir)?);
    let mut next_offset = Offset::ZERO;
    if fs::metadata(dir).is_ok_and(|found| found.is_dir()) {
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
        if let Some((id, path)) = newest_snapshot(dir).map_err(unreadable)? {
            let snapshot = read_snapshot(&path).map_err(|error| error.to_string())?;
            check_level(&snapshot.records)?;
            loaded.load_snapshot(id, snapshot, &path)?;
            next_offset = id.end_offset;
        }
        let forced = forced_offset(dir).map_err(unreadable)?;
        let segments: Vec<_> = whole_segments(dir, forced)
            .map_err(|error| error.to_string())?
            .into_iter()
            .map(log_scan::SegmentFile::from)
            .collect();
        if let Some(first) = segments.first()
            && first.base_offset > next_offset
        {
            return Err(Unreadable::Other(format!(
                "starts at offset {}, and there is no snapshot of the records before",
                first.base_offset
            )));
        }
        let mut level = None;
        for segment in &segments {
            log_scan::scan(segment, &mut |batch| {
                if batch.header.last_offset() < next_offset {
                    return Ok(());
                }
                let batch = MetadataBatch::read(batch).map_err(|error| {
                    format!("{error}: it was damaged, or written by a newer Kafka")
                })?;
                if let MetadataBatchContent::Records(records) = &batch.content
                    && let Err(Unreadable::Level(unknown)) = check_level(records)
                {
                    level = Some(unknown);
                    return Err(String::new());
                }
                next_offset = batch.last_offset.plus(1);
                loaded.apply(batch)
            })
            .map_err(|reason| match level {
                Some(level) => Unreadable::Level(level),
                None => Unreadable::Other(reason),
            })?;
        }
    }
    if loaded.loader.image().features.metadata_version().is_none() {
        read_bootstrap(metadata_log_dir, &mut loaded)?;
    }
    Ok(loaded)
}

/// The initial records of a node that was formatted and never started. Kafka 4.4 has them in the
/// first snapshot of the metadata log.
fn read_bootstrap(metadata_log_dir: &Path, loaded: &mut LoadedMetadata) -> Result<(), Unreadable> {
    let path = metadata_log_dir.join(BOOTSTRAP_FILE);
    let mut records = std::mem::take(&mut loaded.bootstrap_records);
    if records.is_empty() {
        if fs::metadata(&path).is_err() {
            return Ok(());
        }
        records = read_snapshot(&path)
            .map_err(|error| error.to_string())?
            .records;
    }
    check_level(&records)?;
    loaded
        .loader
        .load_batch(records, Provenance::EMPTY)
        .map(drop)
        .map_err(|error| Unreadable::Other(format!("{}: {error}", path.display())))
}

fn check_level(records: &[MetadataRecord]) -> Result<(), Unreadable> {
    for record in records {
        if let MetadataRecord::FeatureLevel(record) = record
            && &*record.name == MetadataVersion::FEATURE_NAME
            && MetadataVersion::from_feature_level(record.feature_level).is_none()
        {
            return Err(Unreadable::Level(record.feature_level));
        }
    }
    Ok(())
}

fn election_state(dir: &Path) -> Result<Option<ElectionState>, Unreadable> {
    let path = dir.join(QUORUM_STATE_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => ElectionState::from_json(&text)
            .map(Some)
            .map_err(|error| Unreadable::Other(format!("quorum-state cannot be read: {error}"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Unreadable::Other(format!(
            "quorum-state cannot be read: {error}"
        ))),
    }
}

fn newest_snapshot(dir: &Path) -> std::io::Result<Option<(SnapshotId, PathBuf)>> {
    let mut newest: Option<(SnapshotId, PathBuf)> = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let id = entry
            .file_name()
            .to_str()
            .and_then(SnapshotId::from_file_name);
        if let Some(id) = id
            && newest.as_ref().is_none_or(|(newest, _)| id > *newest)
        {
            newest = Some((id, entry.path()));
        }
    }
    Ok(newest)
}

/// Checks the voters: this node alone, or a quorum with others.
fn quorum(
    config: &BrokerConfig,
    own: &MetaProperties,
    loaded: &LoadedMetadata,
    place: &str,
    look: &mut Look,
) {
    let voters = match loaded.control_records.last_voters() {
        voters
            if loaded
                .control_records
                .last_kraft_version()
                .is_reconfig_supported()
                && !voters.is_empty() =>
        {
            voters.clone()
        }
        _ => match static_voters(config) {
            Ok(voters) => voters,
            Err(sentence) => {
                let (what, change) = sentence.split_once(": ").unwrap_or((&sentence, ""));
                return look.refuse("quorum", place, what.to_owned(), change);
            }
        },
    };
    // With other voters, it may be a node with a new disk that is to be added again (KIP-853);
    // alone it would wait forever.
    let mut of_quorum = voters.voters();
    let (Some(voter), None) = (of_quorum.next(), of_quorum.next()) else {
        return;
    };
    let is_own_directory = match (voter.key.directory_id, own.directory_id) {
        (Some(voting), Some(own)) => voting == own,
        _ => true,
    };
    if voter.key.id.value() == config.node_id && !is_own_directory {
        let what = format!(
            "the voter of the metadata quorum is node {} with another metadata directory than this one",
            voter.key.id
        );
        let change = "give the metadata.log.dir that was formatted with it";
        look.refuse("quorum", place, what, change);
    }
}

/// Unknown feature levels are refusals.
fn features(image: &MetadataImage, place: &str, look: &mut Look) {
    for (name, level) in image.features.levels() {
        let Some(feature) = Feature::from_name(name) else {
            let what =
                format!("{name} is finalized at level {level}, and the feature is not known");
            let change = "disable it with the Kafka that knows it: kafka-features disable";
            look.refuse("features", place, what, change);
            continue;
        };
        if feature.name == KRAFT_VERSION.name {
            continue;
        }
        let latest = feature.latest_production();
        if level > latest {
            let what = format!(
                "{name} is finalized at level {level}, and levels up to {latest} are known"
            );
            let change = "lower it with the Kafka that knows it: kafka-features downgrade";
            look.refuse("features", place, what, change);
        }
    }
}

fn brokers(config: &BrokerConfig, image: &MetadataImage, place: &str, look: &mut Look) {
    let others: Vec<BrokerId> = image
        .cluster
        .brokers()
        .map(|broker| broker.id)
        .filter(|id| id.value() != config.node_id)
        .collect();
    if !others.is_empty() {
        let what = format!(
            "{} registered besides this one: {}",
            count(others.len(), "broker is", "brokers are"),
            some_of(&others)
        );
        let change = "if they are gone for good, unregister each: ottla cluster unregister --id ID";
        look.note("brokers", place, what, change);
    }
}

/// Security settings that Kafka enforces and this release does not.
fn security(config: &BrokerConfig, image: &MetadataImage, place: &str, look: &mut Look) {
    let acls = image.kept.acls.len();
    if acls > 0 && !config.has_authorizer() {
        let what = format!(
            "{} not enforced without an authorizer, as with Apache Kafka: every client that can connect may \
             do everything",
            count(acls, "ACL is", "ACLs are")
        );
        let change =
            "set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        look.note("ACLs", place, what, change);
    }
    let tokens = image.kept.delegation_tokens.iter().count();
    if tokens > 0 && config.delegation_token_secret_key().is_none() {
        let what = format!(
            "{} stored, but clients cannot log in with them without delegation.token.secret.key, as with Apache Kafka",
            count(tokens, "delegation token is", "delegation tokens are")
        );
        let change = "set delegation.token.secret.key to the value of the other nodes";
        look.note("delegation tokens", place, what, change);
    }
}

/// Dynamic broker settings.
fn dynamic_settings(config: &BrokerConfig, image: &MetadataImage, look: &mut Look) {
    let own = ConfigResource::broker(BrokerId(config.node_id));
    for (resource, place) in [
        (
            ConfigResource::default_broker(),
            "dynamic settings of all brokers",
        ),
        (own, "dynamic settings of this broker"),
    ] {
        for (key, value) in image.configs.entries(&resource) {
            dynamic_setting(config, key, value, place, look);
        }
    }
}

fn dynamic_setting(config: &BrokerConfig, key: &str, value: &str, place: &str, look: &mut Look) {
    let of_listener = key
        .strip_prefix("listener.name.")
        .and_then(|rest| rest.split_once('.'));
    let def = broker_config(of_listener.map_or(key, |(_, base)| base));
    let shown = match def {
        Some(def) if !def.is_sensitive() => value,
        _ => "[hidden]",
    };
    let change = "remove it with kafka-configs --delete-config if that is intended";
    let is_in_file = |name: &str| {
        let mut listeners = config.listeners.iter();
        listeners.any(|listener| listener.name.to_lowercase() == name)
    };
    let is_fixed = BrokerConfig::is_fixed_of_listener(key);
    if is_fixed && of_listener.is_some_and(|(name, _)| is_in_file(name)) {
        let what = format!(
            "{key}={shown} would apply to a listener of the properties file, and Kafka applies it only to listeners \
             that are added while it runs"
        );
        return look.unserved_settings(config, place, what, change);
    }
    let Some(def) = def else {
        if !is_fixed {
            let what = format!("{key} is an unknown setting, stored without effect");
            look.note("dynamic settings", place, what, "");
        }
        return;
    };
    if let Some(reason) = def.refusal(value) {
        let what = format!("{key}={shown} is refused: {reason}");
        look.unserved_settings(config, place, what, change);
    } else if (def.update_mode == UpdateMode::ReadOnly && !is_fixed) || def.parse(value).is_err() {
        let what = format!("{key}={shown} is ignored, as Kafka ignores it");
        look.note("dynamic settings", place, what, "");
    } else if let Support::AcceptedWithoutEffect(note) = def.support
        && def.default_text() != Some(value)
    {
        look.note(
            "dynamic settings",
            place,
            format!("{key}={shown} has no effect: {note}"),
            "",
        );
    }
}

/// Without tiered storage, the remote records of tiered topics could not be read.
fn tiered_topics(config: &BrokerConfig, image: &MetadataImage, look: &mut Look) {
    if config.remote_log_storage_system_enable || !config.process_roles.broker {
        return;
    }
    let resources = image.configs.resources();
    let tiered = resources.filter(|(resource, entries)| {
        let enabled = entries.get("remote.storage.enable");
        resource.kind == ConfigResourceType::Topic
            && enabled.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    });
    let topics: BTreeSet<String> = tiered.map(|(it, _)| it.name.to_string()).collect();
    if topics.is_empty() {
        return;
    }
    let place = format!(
        "settings of {}: {}",
        count(topics.len(), "topic", "topics"),
        some_of(&topics)
    );
    look.refuse(
        "topic settings",
        &place,
        "remote.storage.enable=true needs remote.log.storage.system.enable=true in the properties file".to_owned(),
        "add the settings of tiered storage that the other brokers have, or delete these topics",
    );
}

/// Reports topic settings that have no effect or another effect than in Kafka.
fn topic_settings(image: &MetadataImage, look: &mut Look) {
    let kind = ConfigResourceType::Topic;
    let change =
        "set it back with kafka-configs, and wait until the records moved elsewhere are back";
    let subject = "topic settings";
    resource_settings(
        image,
        kind,
        subject,
        ("topic", "topics"),
        topic_config,
        change,
        look,
    );
}

/// The same for groups.
fn group_settings(image: &MetadataImage, look: &mut Look) {
    let kind = ConfigResourceType::Group;
    let change = "set it back with kafka-configs";
    let subject = "group settings";
    resource_settings(
        image,
        kind,
        subject,
        ("group", "groups"),
        group_config,
        change,
        look,
    );
}

fn resource_settings(
    image: &MetadataImage,
    kind: ConfigResourceType,
    subject: &'static str,
    (one, many): (&str, &str),
    definition: fn(&str) -> Option<&'static ConfigDef>,
    change: &str,
    look: &mut Look,
) {
    let mut unserved: BTreeMap<(&'static str, &'static str, bool), BTreeSet<String>> =
        BTreeMap::new();
    for (resource, entries) in image.configs.resources() {
        if resource.kind != kind {
            continue;
        }
        for (key, value) in entries {
            let Some(def) = definition(key) else {
                continue;
            };
            let what = match (def.support, def.refusal(value)) {
                (_, Some(reason)) => Some((reason, true)),
                (Support::AcceptedWithoutEffect(note), None)
                    if def.default_text() != Some(value) =>
                {
                    Some((note, false))
                }
                _ => None,
            };
            if let Some((reason, is_refused)) = what {
                let names = unserved.entry((def.name, reason, is_refused)).or_default();
                names.insert(resource.name.to_string());
            }
        }
    }
    for ((key, reason, is_refused), names) in unserved {
        let place = format!(
            "settings of {}: {}",
            count(names.len(), one, many),
            some_of(&names)
        );
        if is_refused {
            look.refuse(
                subject,
                &place,
                format!("{key} is refused: {reason}"),
                change,
            );
        } else {
            look.note(
                subject,
                &place,
                format!("{key} has no effect: {reason}"),
                "",
            );
        }
    }
}
