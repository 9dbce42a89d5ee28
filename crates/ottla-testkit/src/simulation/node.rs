//! A node of a run: its disk, which outlives its processes, and the process that runs on it, if one does.

use std::collections::BTreeMap;

use ottla_types::{Timestamp, TopicIdPartition, Uuid};

use super::broker_shell::BrokerShell;
use super::checkers::Checkers;
use super::clock::Clock;
use super::history::History;
use super::message::{Body, FIRST_CONTROLLER};
use super::metadata_log::MetadataLog;
use super::partition_log::PartitionLog;
use super::quorum_shell::QuorumShell;
use super::random::Random;

pub(crate) struct Node {
    pub id: i32,
    pub clock: Clock,
    pub disk: Disk,
    /// `None` while it is down.
    pub process: Option<Process>,
    /// Raised with every start: what belongs to an earlier life is void.
    pub life: u64,
    /// When it looks at its clock next, in true time.
    pub wake_at_ms: Option<u64>,
}

pub(crate) struct Process {
    pub quorum: QuorumShell,
    /// On brokers.
    pub broker: Option<BrokerShell>,
}

pub(crate) struct Disk {
    pub metadata: MetadataLog,
    pub partitions: BTreeMap<TopicIdPartition, PartitionLog>,
    /// The `directory.id` of the log directory that has the metadata log.
    pub directory: Uuid,
    /// The same of the other one, of a broker.
    pub second: Uuid,
    /// In which of the two each log lies.
    places: BTreeMap<TopicIdPartition, Uuid>,
    /// The second one can be neither read nor written, until the broker is started again.
    pub has_lost_second: bool,
    /// The marker of a clean stop, with the broker epoch; -1 without it.
    pub clean_stop_epoch: i64,
    /// Nothing more fits on it.
    pub is_full: bool,
}

impl Disk {
    pub(crate) fn new(directory: Uuid, second: Uuid) -> Disk {
        Disk {
            metadata: MetadataLog::default(),
            partitions: BTreeMap::new(),
            directory,
            second,
            places: BTreeMap::new(),
            has_lost_second: false,
            clean_stop_epoch: -1,
            is_full: false,
        }
    }

    /// The log directories that work.
    pub(crate) fn online(&self) -> Vec<Uuid> {
        match self.has_lost_second {
            true => vec![self.directory],
            false => vec![self.directory, self.second],
        }
    }

    /// Where a log lies that is here.
    pub(crate) fn place(&self, partition: TopicIdPartition) -> Option<Uuid> {
        self.places.get(&partition).copied()
    }

    /// Whether a log lies where it cannot be got at.
    pub(crate) fn is_out_of_reach(&self, partition: TopicIdPartition) -> bool {
        self.has_lost_second && self.place(partition) == Some(self.second)
    }

    /// The log of a replica, made where it is wanted if that is a directory of this broker's that works, and else in any.
    pub(crate) fn log_at(
        &mut self,
        partition: TopicIdPartition,
        wanted: Option<Uuid>,
    ) -> &mut PartitionLog {
        let online = self.online();
        let log = self.partitions.entry(partition);
        log.or_insert_with(|| {
            let any = online[partition.partition.value() as usize % online.len()];
            let place = wanted.filter(|wanted| online.contains(wanted));
            self.places.insert(partition, place.unwrap_or(any));
            PartitionLog::new()
        })
    }

    pub(crate) fn remove(&mut self, partition: TopicIdPartition) {
        self.partitions.remove(&partition);
        self.places.remove(&partition);
    }

    /// Puts an empty directory in the place of the second one; whether there was anything in it.
    pub(crate) fn replace_second(&mut self, second: Uuid) -> bool {
        let lost = std::mem::replace(&mut self.second, second);
        let before = self.partitions.len();
        let places = &self.places;
        self.partitions
            .retain(|partition, _| places.get(partition) != Some(&lost));
        self.places.retain(|_, place| *place != lost);
        self.partitions.len() < before
    }
}

/// What a process can do and see while it takes one step.
pub(crate) struct Surroundings<'a> {
    pub id: i32,
    pub life: u64,
    /// Of the node's own clock.
    pub now_ms: u64,
    /// For the history.
    pub true_ms: u64,
    pub disk: &'a mut Disk,
    pub random: &'a mut Random,
    pub checkers: &'a mut Checkers,
    pub history: &'a mut History,
    pub out: Vec<Out>,
    /// In how many of ten thousand cases the process ends between two effects.
    pub stumbles: u64,
}

/// What of a step the world has to see to.
#[derive(Debug)]
pub(crate) enum Out {
    Send {
        to: i32,
        to_life: Option<u64>,
        body: Box<Body>,
    },
    /// Another thread of the process flushes a log, and says so later.
    Flush { partition: TopicIdPartition },
}

/// Why a process goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// It is killed, or its machine loses power.
    Crashed,
    /// It ends by itself, because it cannot go on.
    Failed,
    /// It was let go, and has put everything in order.
    Cleanly,
}

impl Surroundings<'_> {
    pub(crate) fn send(&mut self, to: i32, body: Body) {
        self.out.push(Out::Send {
            to,
            to_life: None,
            body: Box::new(body),
        });
    }

    pub(crate) fn answer(&mut self, to: i32, to_life: u64, body: Body) {
        self.out.push(Out::Send {
            to,
            to_life: Some(to_life),
            body: Box::new(body),
        });
    }

    /// The time of day, on which all nodes agree.
    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp(self.true_ms as i64)
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let id = self.id;
        self.history
            .note(self.true_ms, || format!("{}: {}", name(id), line()));
    }

    /// A place at which the process may end.
    pub(crate) fn stumble(&mut self) -> Result<(), Stopped> {
        match self.stumbles > 0 && self.random.below(10_000) < self.stumbles {
            true => Err(Stopped::Crashed),
            false => Ok(()),
        }
    }
}

/// For people.
pub(crate) fn name(id: i32) -> String {
    match id {
        id if id < FIRST_CONTROLLER => format!("broker {id}"),
        id if id < super::message::FIRST_CLIENT => format!("controller {id}"),
        id => format!("client {id}"),
    }
}

pub(crate) fn is_broker(id: i32) -> bool {
    id < FIRST_CONTROLLER
}
