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
