//! The lifecycle state of a node.

use ottla_sync::atomic::{AtomicU8, Ordering};

/// The numbers of Kafka's `BrokerState`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BrokerState {
    Starting = 1,
    /// Logs are being opened, and recovered if necessary.
    Recovery = 2,
    Running = 3,
    /// Requests in flight are answered; no new ones are accepted.
    PendingControlledShutdown = 6,
    ShuttingDown = 7,
}

impl BrokerState {
    /// The state as text for people.
    pub fn description(self) -> &'static str {
        match self {
            BrokerState::Starting => "starting",
            BrokerState::Recovery => "opening its logs",
            BrokerState::Running => "running",
            BrokerState::PendingControlledShutdown => "answering requests in flight, then stopping",
            BrokerState::ShuttingDown => "stopping",
        }
    }
}

/// The steps of a stop that may take time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum StopStep {
    /// The controller moves the leadership of this node's partitions to other brokers.
    Leaders,
    /// Clients receive the responses to requests in flight.
    Clients,
    /// The logs are written to disk.
    Logs,
    /// Another controller becomes leader of the metadata quorum.
    Quorum,
}

impl StopStep {
    const ALL: [StopStep; 4] = [
        StopStep::Leaders,
        StopStep::Clients,
        StopStep::Logs,
        StopStep::Quorum,
    ];

    /// The awaited event as text for people.
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

    /// Whether the step depends on other nodes. A hurried stop skips such steps.
    pub fn needs_others(self) -> bool {
        matches!(self, StopStep::Leaders | StopStep::Quorum)
    }
}

/// A [`StopStep`] shared between threads; `None` before the stop.
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

/// A [`BrokerState`] shared between threads.
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
    fn each_step_of_a_stop_round_trips() {
        let cell = StopStepCell::default();
        assert_eq!(cell.get(), None);
        for step in StopStep::ALL {
            cell.set(step);
            assert_eq!(cell.get(), Some(step));
        }
    }
}
