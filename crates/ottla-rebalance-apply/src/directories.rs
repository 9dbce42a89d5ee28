//! The log directories of brokers: the sizes of replicas, and free space.

use std::collections::BTreeMap;
use std::time::Instant;

use ottla_client::{Admin, ClientError};
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use ottla_rebalance::LogDir;

/// The log directories of a broker at one moment.
#[derive(Debug)]
pub struct Directories {
    pub at: Instant,
    directories: Vec<DescribeLogDirsResult>,
}

/// The log directories of these brokers.
pub async fn directories(
    admin: &Admin,
    brokers: impl IntoIterator<Item = i32>,
) -> Result<BTreeMap<i32, Directories>, ClientError> {
    let mut found = BTreeMap::new();
    for broker in brokers {
        let directories = admin.describe_log_dirs(broker).await?;
        let at = Instant::now();
        found.insert(broker, Directories { at, directories });
    }
    Ok(found)
}

impl Directories {
    /// The size of each replica, and the index of its log directory.
    pub fn replicas(&self) -> BTreeMap<(&str, i32), (u64, usize)> {
        let mut replicas = BTreeMap::new();
        for (index, directory) in self.directories.iter().enumerate() {
            for topic in &directory.topics {
                for partition in topic.partitions.iter().filter(|it| !it.is_future_key) {
                    let size = u64::try_from(partition.partition_size).unwrap_or(0);
                    replicas.insert((&*topic.name, partition.partition_index), (size, index));
                }
            }
        }
        replicas
    }

    /// The free bytes of the directory that a new replica goes to: the directory with the fewest
    /// replicas among those that accept replicas. `None` if the broker does not report its disks.
    pub fn free_bytes(&self) -> Option<u64> {
        let open = self.directories.iter().filter(|it| accepts_replicas(it));
        let replicas = |it: &&DescribeLogDirsResult| {
            it.topics
                .iter()
                .map(|it| it.partitions.len())
                .sum::<usize>()
        };
        u64::try_from(open.min_by_key(replicas)?.usable_bytes).ok()
    }

    /// As plans see them.
    pub fn log_dirs(&self) -> Vec<LogDir> {
        let log_dir = |it: &DescribeLogDirsResult| {
            let (total, usable) = (
                u64::try_from(it.total_bytes),
                u64::try_from(it.usable_bytes),
            );
            let total = total.ok().filter(|_| usable.is_ok());
            LogDir {
                total_bytes: total,
                used_bytes: total.unwrap_or(0).saturating_sub(usable.unwrap_or(0)),
                accepts_replicas: accepts_replicas(it),
            }
        };
        self.directories.iter().map(log_dir).collect()
    }
}

fn accepts_replicas(directory: &DescribeLogDirsResult) -> bool {
    directory.error_code == 0 && !directory.is_cordoned
}
