//! What a node is doing as a whole.

use ottla_sync::atomic::{AtomicU8, Ordering};

/// The numbers are those of Kafka's `BrokerState`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BrokerState {
    Starting = 1,
    /// Its logs are being opened, and recovered where they need it.
    Recovery = 2,
    Running = 3,
    /// Requests in flight are answered; no others are taken.
    PendingControlledShutdown = 6,
    ShuttingDown = 7,
}

impl BrokerState {
    /// For people.
    pub fn description(self) -> &'static str {
        match self {
            BrokerState::Starting => "starting",
            BrokerState::Recovery => "opening its logs",
            BrokerState::Running => "running",
            BrokerState::PendingControlledShutdown => "answering what is in flight, then stopping",
            BrokerState::ShuttingDown => "stopping",
        }
    }
}

/// What a stop waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum StopStep {
    /// The controller, to give this node's partitions to other brokers.
    Leaders,
    /// Clients, to take the answers to what they have asked.
    Clients,
    /// The disks, to have everything.
    Logs,
    /// Another controller, to lead the metadata quorum.
    Quorum,
}

impl StopStep {
    const ALL: [StopStep; 4] = [
        StopStep::Leaders,
        StopStep::Clients,
        StopStep::Logs,
        StopStep::Quorum,
    ];

    /// For people: what is waited for.
    pub fn description(self) -> &'static str {
        match self {
            StopStep::Leaders => {
                "the controller to move the leaders of this node's partitions to other brokers"
            }
            StopStep::Clients => "requests in flight to be answered",
            StopStep::Logs => "the logs to be written to disk",
            StopStep::Quorum => "another controller to lead the metadata quorum",
        }
    }

    /// Whether it is given up where the stop is to wait for no other node.
    pub fn needs_others(self) -> bool {
        matches!(self, StopStep::Leaders | StopStep::Quorum)
    }
}

/// A [`StopStep`] that threads share; none before the stop.
#[derive(Default, Debug)]
pub(crate) struct StopStepCell(AtomicU8);

impl StopStepCell {
    pub(crate) fn get(&self) -> Option<StopStep> {
        let number = usize::from(self.0.load(Ordering::Acquire));
        let index = number.checked_sub(1)?;
        StopStep::ALL.get(index).copied()
    }

    pub(crate) fn set(&self, step: StopStep) {
        self.0.store(step as u8 + 1, Ordering::Release);
    }
}

/// A [`BrokerState`] that threads share.
#[derive(Debug)]
pub(crate) struct StateCell(AtomicU8);

impl Default for StateCell {
    fn default() -> StateCell {
        StateCell(AtomicU8::new(BrokerState::Starting as u8))
    }
}

impl StateCell {
    pub(crate) fn get(&self) -> BrokerState {
        let state = self.0.load(Ordering::Acquire);
        [
            BrokerState::Starting,
            BrokerState::Recovery,
            BrokerState::Running,
            BrokerState::PendingControlledShutdown,
        ]
        .into_iter()
        .find(|&known| known as u8 == state)
        .unwrap_or(BrokerState::ShuttingDown)
    }

    pub(crate) fn set(&self, state: BrokerState) {
        self.0.store(state as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_stop_comes_back_as_it_was_set() {
        let cell = StopStepCell::default();
        assert_eq!(cell.get(), None);
        for step in StopStep::ALL {
            cell.set(step);
            assert_eq!(cell.get(), Some(step));
        }
    }
}
