//! The progress of a member toward its target assignment.
//! Source: `MemberState`.

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemberState {
    /// The member has its target assignment in the epoch of that assignment.
    #[default]
    Stable = 0,
    /// The member must revoke partitions before it moves to the next epoch.
    UnrevokedPartitions = 1,
    /// The member is in the newest epoch, and waits for partitions that others have not given up.
    UnreleasedPartitions = 2,
    /// A state of a newer Kafka version, read from the log.
    Unknown = 127,
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

    /// The value in a record.
    pub fn code(self) -> i8 {
        self as i8
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
