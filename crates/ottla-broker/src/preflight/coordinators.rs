//! What the coordinators have written: groups that are in use and cannot be served yet.
//!
//! Their records stay in their logs byte for byte. But an application that comes back to one of them is refused,
//! so that whoever starts the node has to know of them. One counts as in use for as long as it exists: for Kafka
//! a group without members is one whose application may come back.

use std::collections::{BTreeMap, BTreeSet};

use ottla_config::BrokerConfig;
use ottla_metadata::MetadataImage;
use ottla_metadata::feature::SHARE_VERSION;
use ottla_protocol::coordinator_records::{GroupRecordKey, ShareRecordKey};
use ottla_records::RecordBatch;
use ottla_types::Uuid;

use super::directories::Listed;
use super::{Look, Unserved, count, log_scan, some_of};

/// The most bytes that the records of one batch may decompress to.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

const GROUPS: &str = "__consumer_offsets";
const SHARES: &str = "__share_group_state";

pub(super) fn examine(
    config: &BrokerConfig,
    dirs: &[Listed],
    image: &MetadataImage,
    look: &mut Look,
) {
    // Without the feature there is no such group, and the log need not be read.
    if image.features.level(SHARE_VERSION.name) > 0 {
        let mut groups = Groups::default();
        if read(
            dirs,
            GROUPS,
            &mut |key, value| groups.on_record(key, value),
            look,
        ) {
            groups.report(config, look);
        }
    }
    let mut shares = ShareStates::default();
    if read(
        dirs,
        SHARES,
        &mut |key, value| shares.on_record(key, value),
        look,
    ) {
        shares.report(config, image, look);
    }
}

type EachRecord<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>);

/// Gives every record of a topic's partitions to `each`. Returns whether all could be read.
fn read(dirs: &[Listed], topic: &str, each: EachRecord<'_>, look: &mut Look) -> bool {
    let mut is_read = true;
    for dir in dirs {
        for partition in dir
            .partitions
            .iter()
            .filter(|partition| &*partition.topic == topic)
        {
            let path = dir.path.join(partition.dir_name());
            let read = log_scan::segments(&path)
                .map_err(|error| format!("cannot be read: {error}"))
                .and_then(|segments| {
                    for segment in &segments {
                        log_scan::scan(segment, &mut |batch| read_batch(batch, &mut *each))?;
                    }
                    Ok(())
                });
            if let Err(reason) = read {
                is_read = false;
                let what = format!("who is in use cannot be told: {reason}");
                look.warn("coordinators", &path.display().to_string(), what, "");
            }
        }
    }
    is_read
}

fn read_batch(batch: &RecordBatch, each: EachRecord<'_>) -> Result<(), String> {
    if batch.header.attributes.is_control() {
        return Ok(());
    }
    let unreadable = |error: ottla_records::BatchError| {
        format!("the batch at offset {}: {error}", batch.header.base_offset)
    };
    let records = batch.records(MAX_DECOMPRESSED_BYTES).map_err(unreadable)?;
    for record in records.iter() {
        let record = record.map_err(unreadable)?;
        if let Some(key) = record.key {
            each(key, record.value);
        }
    }
    Ok(())
}

/// Share groups, whether they exist, and their members.
#[derive(Default)]
struct Groups(BTreeMap<String, (bool, BTreeSet<String>)>);

impl Groups {
    fn on_record(&mut self, key: &[u8], value: Option<&[u8]>) {
        // Records of types that are not known are some other group's; they are kept like the rest.
        let Ok(key) = GroupRecordKey::decode(&bytes::Bytes::copy_from_slice(key)) else {
            return;
        };
        let (group, member) = match key {
            GroupRecordKey::ShareGroupMetadata(key) => (key.group_id, None),
            GroupRecordKey::ShareGroupMemberMetadata(key) => (key.group_id, Some(key.member_id)),
            _ => return,
        };
        let (exists, members) = self.0.entry(group.to_string()).or_default();
        match (member, value) {
            (None, value) => *exists = value.is_some(),
            (Some(member), Some(_)) => {
                members.insert(member.to_string());
            }
            (Some(member), None) => {
                members.remove(&*member);
            }
        }
    }

    fn report(&self, config: &BrokerConfig, look: &mut Look) {
        let groups: Vec<(&str, bool)> = self
            .0
            .iter()
            .filter(|(_, (exists, _))| *exists)
            .map(|(group, (_, members))| (group.as_str(), !members.is_empty()))
            .collect();
        if groups.is_empty() {
            return;
        }
        let with_members = groups.iter().filter(|(_, has_members)| *has_members);
        let what = format!(
            "{} not served yet, {} with members: {}",
            count(
                groups.len(),
                "group of shares (KIP-932) is",
                "groups of shares (KIP-932) are"
            ),
            with_members.count(),
            some_of(groups.iter().map(|(group, _)| *group))
        );
        let change = "delete them with kafka-share-groups";
        look.unserved(config, Unserved::Groups, GROUPS, what, change);
    }
}

/// Which partitions share groups have read how far: what the share coordinator keeps. Its log is read whatever the
/// level of `share.version` is, since it stays where the feature was taken back.
#[derive(Default)]
struct ShareStates(BTreeMap<String, BTreeSet<(Uuid, i32)>>);

impl ShareStates {
    fn on_record(&mut self, key: &[u8], value: Option<&[u8]>) {
        let key = ShareRecordKey::decode(&bytes::Bytes::copy_from_slice(key));
        match (key, value) {
            (Ok(ShareRecordKey::ShareSnapshot(key)), Some(_)) => {
                let partitions = self.0.entry(key.group_id.to_string()).or_default();
                partitions.insert((key.topic_id, key.partition));
            }
            // Deleting the state of a partition takes the snapshot away. An update without a snapshot before it says
            // nothing, as for Kafka's coordinator.
            (Ok(ShareRecordKey::ShareSnapshot(key)), None) => {
                if let Some(partitions) = self.0.get_mut(&*key.group_id) {
                    partitions.remove(&(key.topic_id, key.partition));
                }
            }
            _ => {}
        }
    }

    fn report(&mut self, config: &BrokerConfig, image: &MetadataImage, look: &mut Look) {
        // The state of a topic that was deleted goes with it, at some later time.
        for partitions in self.0.values_mut() {
            partitions.retain(|(topic_id, _)| image.topics.by_id(*topic_id).is_some());
        }
        self.0.retain(|_, partitions| !partitions.is_empty());
        if self.0.is_empty() {
            return;
        }
        let partitions = self.0.values().map(BTreeSet::len).sum();
        let what = format!(
            "the state of {} (KIP-932), over {}, is not served yet: {}",
            count(self.0.len(), "share group", "share groups"),
            count(partitions, "partition", "partitions"),
            some_of(self.0.keys())
        );
        let change = "delete their offsets with kafka-share-groups";
        look.unserved(config, Unserved::Groups, SHARES, what, change);
    }
}
