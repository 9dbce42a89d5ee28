//! How far a member is on its way to the target assignment.
//! Source: `MemberState`.

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemberState {
    /// Has what its target assignment gave it in its epoch.
    #[default]
    Stable,
    /// Must give partitions up before it goes to the next epoch.
    UnrevokedPartitions,
    /// Is in the newest epoch, and waits for partitions that others have not given up.
    UnreleasedPartitions,
    /// A state of a newer Kafka, read from the log.
    Unknown,
}

impl MemberState {
    pub fn from_code(code: i8) -> Self {
        match code {
            0 => MemberState::Stable,
            1 => MemberState::UnrevokedPartitions,
            2 => MemberState::UnreleasedPartitions,
            _ => MemberState::Unknown,
        }
    }

    /// As it stands in a record.
    pub fn code(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::UnrevokedPartitions => 1,
            MemberState::UnreleasedPartitions => 2,
            MemberState::Unknown => 127,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MemberState;

    #[test]
    fn states_survive_a_record_and_others_are_unknown() {
        for code in [0, 1, 2, 127] {
            assert_eq!(MemberState::from_code(code).code(), code);
        }
        assert_eq!(MemberState::from_code(3), MemberState::Unknown);
        assert_eq!(MemberState::from_code(-1), MemberState::Unknown);
    }
}
