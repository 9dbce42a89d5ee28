//! The states of a transactional id, with their numbers in the log and their names in responses.
//! Source: `TransactionState`.

use ottla_types::named_enum;

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum TransactionState {
        /// There is a producer and no transaction yet.
        Empty = 0 => "Empty",
        Ongoing = 1 => "Ongoing",
        /// The commit is decided in the log, and markers are being written.
        PrepareCommit = 2 => "PrepareCommit",
        PrepareAbort = 3 => "PrepareAbort",
        /// All markers are written.
        CompleteCommit = 4 => "CompleteCommit",
        CompleteAbort = 5 => "CompleteAbort",
        /// Expired and about to be removed.
        Dead = 6 => "Dead",
        /// The epoch of a producer is being raised to fence an earlier instance.
        PrepareEpochFence = 7 => "PrepareEpochFence",
    }
}

impl TransactionState {
    /// The value in the log.
    pub fn id(self) -> i8 {
        self as i8
    }

    pub fn from_id(id: i8) -> Option<TransactionState> {
        Self::ALL.into_iter().find(|state| state.id() == id)
    }

    pub fn from_name(name: &str) -> Option<TransactionState> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the transition from `previous` to this state is valid.
    pub(super) fn may_follow(self, previous: TransactionState) -> bool {
        use TransactionState as S;
        let is_at_rest = matches!(previous, S::Empty | S::CompleteCommit | S::CompleteAbort);
        match self {
            S::Empty | S::Dead => is_at_rest,
            S::Ongoing => is_at_rest || previous == S::Ongoing,
            S::PrepareCommit | S::PrepareEpochFence => previous == S::Ongoing,
            // Since version 2 of the protocol, a client that does not know whether it has started a
            // transaction can abort it to be sure.
            S::PrepareAbort => is_at_rest || matches!(previous, S::Ongoing | S::PrepareEpochFence),
            S::CompleteCommit => previous == S::PrepareCommit,
            S::CompleteAbort => previous == S::PrepareAbort,
        }
    }

    pub(super) fn may_expire(self) -> bool {
        matches!(
            self,
            TransactionState::Empty
                | TransactionState::CompleteCommit
                | TransactionState::CompleteAbort
        )
    }
}

#[cfg(test)]
mod tests {
    use super::TransactionState as S;

    /// `TransactionState.VALID_PREVIOUS_STATES`.
    const PREVIOUS: [(S, &[S]); 8] = [
        (S::Empty, &[S::Empty, S::CompleteCommit, S::CompleteAbort]),
        (
            S::Ongoing,
            &[S::Ongoing, S::Empty, S::CompleteCommit, S::CompleteAbort],
        ),
        (S::PrepareCommit, &[S::Ongoing]),
        (
            S::PrepareAbort,
            &[
                S::Ongoing,
                S::PrepareEpochFence,
                S::Empty,
                S::CompleteCommit,
                S::CompleteAbort,
            ],
        ),
        (S::CompleteCommit, &[S::PrepareCommit]),
        (S::CompleteAbort, &[S::PrepareAbort]),
        (S::Dead, &[S::Empty, S::CompleteAbort, S::CompleteCommit]),
        (S::PrepareEpochFence, &[S::Ongoing]),
    ];

    #[test]
    fn transitions_are_kafkas() {
        for (state, previous) in PREVIOUS {
            for from in S::ALL {
                assert_eq!(
                    state.may_follow(from),
                    previous.contains(&from),
                    "{from:?} -> {state:?}"
                );
            }
        }
    }

    #[test]
    fn numbers_and_names_lead_back_to_their_states() {
        for state in S::ALL {
            assert_eq!(S::from_id(state.id()), Some(state));
            assert_eq!(S::from_name(state.name()), Some(state));
        }
        assert_eq!(S::from_id(8), None);
        assert_eq!(S::from_name("ongoing"), None);
    }
}
