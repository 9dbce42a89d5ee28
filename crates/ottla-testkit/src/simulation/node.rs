//! A node of a run: its disk, which outlives its processes, and the process that runs on it, if one does.

use std::collections::BTreeMap;

use ottla_types::{TopicIdPartition, Uuid};

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
    /// `directory.id`
    pub directory: Uuid,
    /// The marker of a clean stop, with the broker epoch; -1 without it.
    pub clean_stop_epoch: i64,
    /// Nothing more fits on it.
    pub is_full: bool,
}

impl Disk {
    pub(crate) fn new(directory: Uuid) -> Disk {
        Disk {
            metadata: MetadataLog::default(),
            partitions: BTreeMap::new(),
            directory,
            clean_stop_epoch: -1,
            is_full: false,
        }
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
