//! What runs come to: what was found, and how much has happened.

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What a checker found; nothing where all is well.
    pub finding: Option<String>,
    pub events: u64,
    pub crashes: u64,
    pub losses: u64,
    pub clean_stops: u64,
    pub lost_directories: u64,
    pub metadata_epochs: usize,
    pub metadata_records: i64,
    pub leader_epochs: usize,
    pub committed_batches: usize,
    pub acknowledged_batches: usize,
    pub consumed_batches: usize,
    /// Of transactions: decided ones, and batches of which the producer was told that they are committed.
    pub transactions: usize,
    pub moved_batches: usize,
    /// Partitions of groups, once an epoch.
    pub assignments: usize,
    /// Records that members of share groups have accepted or rejected.
    pub shared_records: usize,
    /// Seeds in which records are moved on by groups, and in which a share group reads them.
    pub with_movers: u64,
    pub with_sharers: u64,
}

impl Outcome {
    /// Sums up what several runs came to.
    pub fn add(&mut self, other: &Outcome) {
        self.events += other.events;
        self.crashes += other.crashes;
        self.losses += other.losses;
        self.clean_stops += other.clean_stops;
        self.lost_directories += other.lost_directories;
        self.metadata_epochs += other.metadata_epochs;
        self.metadata_records += other.metadata_records;
        self.leader_epochs += other.leader_epochs;
        self.committed_batches += other.committed_batches;
        self.acknowledged_batches += other.acknowledged_batches;
        self.consumed_batches += other.consumed_batches;
        self.transactions += other.transactions;
        self.moved_batches += other.moved_batches;
        self.assignments += other.assignments;
        self.shared_records += other.shared_records;
        self.with_movers += other.with_movers;
        self.with_sharers += other.with_sharers;
    }
}
