//! What a run comes to.

use std::time::Duration;

/// What was found in a run, and how much happened in it: a run in which nothing happens finds nothing either.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What is wrong; nothing where all is well.
    pub finding: Option<String>,
    pub simulated: Duration,
    pub switch_points: u64,
    pub kills: u64,
    pub losses_of_power: u64,
    pub clean_stops: u64,
    pub cuts: u64,
    pub full_disks: u64,
    pub failed_disks: u64,
    /// How often a partition was given other replicas.
    pub moves: u64,
    pub leader_epochs: u64,
    pub metadata_epochs: u64,
    pub segments: u64,
    pub committed_transactions: u64,
    pub sent: u64,
    pub polled: u64,
    pub client_kills: u64,
    /// Records that a group has moved on, and that a share group has settled.
    pub moved: u64,
    pub shared: u64,
    /// How often members of a group were given partitions, how often they have committed, and how often they were
    /// refused to as former members.
    pub given: u64,
    pub commits: u64,
    pub refused_commits: u64,
    /// Records that were settled under the locks that are looked at.
    pub locked: u64,
}

impl Outcome {
    /// Sums up what several runs came to.
    pub fn add(&mut self, other: &Outcome) {
        self.simulated += other.simulated;
        self.switch_points += other.switch_points;
        self.kills += other.kills;
        self.losses_of_power += other.losses_of_power;
        self.clean_stops += other.clean_stops;
        self.cuts += other.cuts;
        self.full_disks += other.full_disks;
        self.failed_disks += other.failed_disks;
        self.moves += other.moves;
        self.leader_epochs += other.leader_epochs;
        self.metadata_epochs += other.metadata_epochs;
        self.segments += other.segments;
        self.committed_transactions += other.committed_transactions;
        self.sent += other.sent;
        self.polled += other.polled;
        self.client_kills += other.client_kills;
        self.moved += other.moved;
        self.shared += other.shared;
        self.given += other.given;
        self.commits += other.commits;
        self.refused_commits += other.refused_commits;
        self.locked += other.locked;
    }
}
