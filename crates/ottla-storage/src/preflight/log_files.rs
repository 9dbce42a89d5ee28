//! The small files of every log without which its directory goes offline at the start: `partition.metadata` and
//! `leader-epoch-checkpoint`. The table in `docs/recovery.md` has the decisions.

use std::path::Path;

use ottla_config::BrokerConfig;
use ottla_log::checkpoint::PartitionMetadata;
use ottla_log::{CheckpointError, LeaderEpochs};
use ottla_sync::fs;
use ottla_types::TopicPartition;

use super::look::Look;
use crate::format::directories;
use crate::metadata::metadata_log::METADATA_DIR;

/// How many damaged files of a directory are reported.
const SHOWN: usize = 5;

pub(super) fn examine(config: &BrokerConfig, look: &mut Look) {
    for dir in directories(config) {
        // A directory that cannot be listed was reported already.
        if let Ok(entries) = fs::read_dir(&dir) {
            let names = entries.flatten().map(|entry| entry.file_name());
            let names = names.filter_map(|name| name.into_string().ok());
            let mut logs: Vec<String> = names
                .filter(|name| TopicPartition::from_dir_name(name).is_ok())
                .collect();
            logs.sort();
            examine_logs(&dir, &logs, look);
        }
    }
}

fn examine_logs(dir: &Path, logs: &[String], look: &mut Look) {
    let mut damaged = 0;
    let mut report = |read: Result<(), CheckpointError>, change: &str| {
        let Err(error) = read else { return };
        damaged += 1;
        if damaged <= SHOWN {
            look.refuse("logs", "", error.to_string(), change);
        }
    };
    for name in logs {
        let log = dir.join(name);
        // A start does not need the topic ID of the metadata log.
        if name != METADATA_DIR {
            report(
                PartitionMetadata::read(&log).map(drop),
                "restore the file, or remove it to have the log assigned to the topic of its name",
            );
        }
        report(
            LeaderEpochs::read(&log).map(drop),
            "restore the file, or, if other brokers have the partition, move the log away and have it copied",
        );
    }
    if damaged > SHOWN {
        let what = format!("{} more such files are damaged", damaged - SHOWN);
        look.refuse("logs", &dir.display().to_string(), what, "");
    }
}
