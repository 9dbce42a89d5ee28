//! The input: brokers, partitions, and the options.

use std::collections::BTreeSet;

/// A cluster at one moment.
#[derive(Clone, Default, Debug)]
pub struct Image {
    /// All brokers that run or have replicas.
    pub brokers: Vec<Broker>,
    pub partitions: Vec<Partition>,
}

#[derive(Clone, Debug)]
pub struct Broker {
    pub id: i32,
    /// A broker without a rack forms its own rack.
    pub rack: Option<String>,
    /// A broker that does not run receives nothing, and keeps its replicas unless it is emptied.
    pub is_alive: bool,
    pub log_dirs: Vec<LogDir>,
}

#[derive(Clone, Debug)]
pub struct LogDir {
    /// The size of the file system; `None` if the broker does not report it, and then there is no
    /// limit.
    pub total_bytes: Option<u64>,
    /// The used part of the file system, which includes everything else that is stored there.
    pub used_bytes: u64,
    /// False for a directory that is offline or cordoned.
    pub accepts_replicas: bool,
}

#[derive(Clone, Debug)]
pub struct Partition {
    pub topic: String,
    pub number: i32,
    /// In the order of preference: the first is the preferred leader.
    pub replicas: Vec<Replica>,
    pub leader: Option<i32>,
    /// The size of one replica.
    pub size_bytes: u64,
    /// What producers write, in bytes per second.
    pub bytes_in: u64,
    /// False if the partition must stay as it is. It is counted all the same.
    pub is_movable: bool,
}

#[derive(Clone, Debug)]
pub struct Replica {
    pub broker: i32,
    /// Index into [`Broker::log_dirs`], if known.
    pub log_dir: Option<usize>,
    pub is_in_sync: bool,
}

/// The goal of the plan. Without added and emptied brokers, the whole cluster is balanced.
#[derive(Clone, Debug)]
pub struct Options {
    /// If not empty, replicas and leaders move to these brokers only, except replicas of emptied
    /// brokers.
    pub added: BTreeSet<i32>,
    /// These brokers lose all replicas. If no brokers are added, nothing else moves.
    pub emptied: BTreeSet<i32>,
    /// How full a log directory may be, in percent of its file system.
    pub max_disk_percent: u32,
    /// How far from the average a broker may be, in percent of the average.
    pub tolerance_percent: u32,
    pub ignores_racks: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            added: BTreeSet::new(),
            emptied: BTreeSet::new(),
            max_disk_percent: 80,
            tolerance_percent: 10,
            ignores_racks: false,
        }
    }
}

impl Options {
    /// Refuses options that do not fit these brokers: all that run or have replicas, and those that run.
    pub fn check(&self, known: &BTreeSet<i32>, alive: &BTreeSet<i32>) -> Result<(), PlanError> {
        let mut named = self.added.iter().chain(&self.emptied);
        if let Some(id) = named.find(|id| !known.contains(*id)) {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            return Err(PlanError::UnknownBroker(*id, known.join(", ")));
        }
        if let Some(id) = self.added.intersection(&self.emptied).next() {
            return Err(PlanError::AddedAndEmptied(*id));
        }
        if let Some(id) = self.added.difference(alive).next() {
            return Err(PlanError::AddedNotRunning(*id));
        }
        match alive.is_subset(&self.emptied) {
            true => Err(PlanError::NoBrokerLeft),
            false => Ok(()),
        }
    }
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    #[error("broker {0} is not part of the cluster; give one of brokers {1}")]
    UnknownBroker(i32, String),
    #[error("broker {0} is to be both added and emptied; give it once")]
    AddedAndEmptied(i32),
    #[error("broker {0} does not run; start it before partitions are moved to it")]
    AddedNotRunning(i32),
    #[error("no broker that runs would be left; empty fewer brokers")]
    NoBrokerLeft,
    #[error(
        "broker {broker} cannot be emptied: the topic of {partition} is excluded; include it with --topics"
    )]
    ExcludedOnEmptied { broker: i32, partition: String },
    #[error(
        "broker {broker} cannot be emptied: {partition} has no leader; start a broker that has its replicas"
    )]
    LeaderlessOnEmptied { broker: i32, partition: String },
    #[error(
        "broker {broker} cannot be emptied: no other broker may take {partition} ({size_bytes} bytes): {}; {}",
        if *.lacks_brokers { "every broker left has a replica of it" } else { "racks and disks forbid it" },
        if *.lacks_brokers { "add a broker" } else { "add brokers or disks, raise --max-disk-used or give --ignore-racks" }
    )]
    NowhereToGo {
        broker: i32,
        partition: String,
        size_bytes: u64,
        /// Whether every broker that is left has a replica already.
        lacks_brokers: bool,
    },
}

impl Partition {
    /// Such as `orders-3`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.topic, self.number)
    }
}
