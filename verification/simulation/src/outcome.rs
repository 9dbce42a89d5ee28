//! The outcome of a run.

use std::time::Duration;

/// The finding of a run, and counts of its events. Without the counts, a run in which nothing
/// happens would look like a success.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The violation; `None` if there is none.
    pub finding: Option<String>,
    pub simulated: Duration,
    pub switch_points: u64,
    pub kills: u64,
    pub losses_of_power: u64,
    pub clean_stops: u64,
    pub cuts: u64,
    pub full_disks: u64,
    pub failed_disks: u64,
    /// How often a node ran out of file handles.
    pub short_handles: u64,
    /// How often a partition was reassigned.
    pub moves: u64,
    pub leader_epochs: u64,
    pub metadata_epochs: u64,
    pub segments: u64,
    pub committed_transactions: u64,
    pub sent: u64,
    pub polled: u64,
    pub client_kills: u64,
    /// The number of records that a group has processed, and that a share group has settled.
    pub moved: u64,
    pub shared: u64,
    /// How often group members were assigned partitions, how often they committed, and how often
    /// commits of former members were refused.
    pub given: u64,
    pub commits: u64,
    pub refused_commits: u64,
    /// The number of records that were settled while locks were checked.
    pub locked: u64,
    /// Acknowledged records in topics that permit unclean elections, and how many of them were
    /// lost.
    pub acknowledged_uncleanly: u64,
    pub lost_uncleanly: u64,
    /// Delayed requests of former leaders. All were refused.
    pub late_requests: u64,
    /// Changes of settings that were answered during the faults.
    pub changes: u64,
    /// Records that were read with `read_uncommitted` during the faults.
    pub read_uncommitted: u64,
    /// Stories that were played: sequences of faults that are rarely drawn.
    pub stories: u64,
    /// Brokers of which a part stayed in memory after their process had ended. A campaign of many
    /// seeds would run out of memory.
    pub leaks: u64,
}

impl Outcome {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Outcome) {
        self.simulated += other.simulated;
        self.switch_points += other.switch_points;
        self.kills += other.kills;
        self.losses_of_power += other.losses_of_power;
        self.clean_stops += other.clean_stops;
        self.cuts += other.cuts;
        self.full_disks += other.full_disks;
        self.failed_disks += other.failed_disks;
        self.short_handles += other.short_handles;
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
        self.acknowledged_uncleanly += other.acknowledged_uncleanly;
        self.lost_uncleanly += other.lost_uncleanly;
        self.late_requests += other.late_requests;
        self.changes += other.changes;
        self.read_uncommitted += other.read_uncommitted;
        self.stories += other.stories;
        self.leaks += other.leaks;
    }
}
