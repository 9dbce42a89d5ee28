//! Messages between the nodes, and network faults.

use std::collections::BTreeSet;

use ottla_types::{BrokerId, ErrorCode};

use super::disk::{Entry, SnapshotContent};
use crate::{Request, Response};

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub from: i32,
    pub to: i32,
    /// The ID by which the requester knows the receiver.
    pub known_as: BrokerId,
    pub correlation_id: u64,
    /// The life of the requester: after a restart it does not know the request.
    pub life: u64,
    pub payload: Payload,
}

#[derive(Clone, Debug)]
pub(super) enum Payload {
    Request(Request),
    Response {
        response: Response,
        entries: Vec<Entry>,
        snapshot: Option<SnapshotContent>,
    },
    Failure(ErrorCode),
}

/// The faults of the network.
#[derive(Clone, Default, Debug)]
pub(super) struct Network {
    /// From, to: nothing arrives.
    pub cut: BTreeSet<(i32, i32)>,
    /// Per thousand messages.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

impl Network {
    pub fn faulty(lost: u64) -> Network {
        Network {
            cut: BTreeSet::new(),
            lost,
            doubled: 30,
            late: 20,
        }
    }

    /// The delay of each copy of a message, in milliseconds.
    pub fn delays(&self, from: i32, to: i32, mut random: impl FnMut(u64) -> u64) -> Vec<u64> {
        if self.cut.contains(&(from, to)) || random(1000) < self.lost {
            return Vec::new();
        }
        let copies = if random(1000) < self.doubled { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                if random(1000) < self.late {
                    100 + random(4000)
                } else {
                    2 + random(15)
                }
            })
            .collect()
    }
}
