//! What must hold in every run: one property a file. Each keeps its first finding, a sentence.

pub(crate) mod acknowledged;
pub(crate) mod committed_records;
pub(crate) mod consumers;
pub(crate) mod convergence;
pub(crate) mod high_watermarks;
pub(crate) mod idempotence;
pub(crate) mod log_matching;
pub(crate) mod metadata_committed;
pub(crate) mod metadata_leaders;
pub(crate) mod partition_leaders;

/// The first thing that a checker found.
#[derive(Default, Debug)]
pub(crate) struct Finding(Option<String>);

impl Finding {
    pub(crate) fn report(&mut self, finding: impl FnOnce() -> String) {
        if self.0.is_none() {
            self.0 = Some(finding());
        }
    }
}

#[derive(Default)]
pub(crate) struct Checkers {
    pub metadata_leaders: metadata_leaders::MetadataLeaders,
    pub metadata_committed: metadata_committed::MetadataCommitted,
    pub partition_leaders: partition_leaders::PartitionLeaders,
    pub high_watermarks: high_watermarks::HighWatermarks,
    pub committed_records: committed_records::CommittedRecords,
    pub acknowledged: acknowledged::Acknowledged,
    pub idempotence: idempotence::Idempotence,
    pub consumers: consumers::Consumers,
    pub log_matching: log_matching::LogMatching,
    pub convergence: convergence::Convergence,
}

impl Checkers {
    /// What is promised where elections may be unclean is less.
    pub(crate) fn new(is_unclean: bool) -> Checkers {
        let mut checkers = Checkers::default();
        checkers.committed_records.is_unclean = is_unclean;
        checkers.acknowledged.is_unclean = is_unclean;
        checkers.consumers.is_unclean = is_unclean;
        checkers
    }

    /// The first finding, with the name of its checker.
    pub(crate) fn finding(&self) -> Option<String> {
        let all: [(&str, &Finding); 10] = [
            ("metadata-leaders", &self.metadata_leaders.finding),
            ("metadata-committed", &self.metadata_committed.finding),
            ("partition-leaders", &self.partition_leaders.finding),
            ("high-watermarks", &self.high_watermarks.finding),
            ("committed-records", &self.committed_records.finding),
            ("acknowledged", &self.acknowledged.finding),
            ("idempotence", &self.idempotence.finding),
            ("consumers", &self.consumers.finding),
            ("log-matching", &self.log_matching.finding),
            ("convergence", &self.convergence.finding),
        ];
        all.iter()
            .find_map(|(name, finding)| Some(format!("{name}: {}", finding.0.as_ref()?)))
    }
}
