//! The state that a producer's handles and its sender share.

use ottla_sync::atomic::AtomicBool;
use std::sync::Arc;

use ottla_sync::Mutex;
use ottla_sync::Notify;

use super::accumulator::Accumulator;
use super::config::ProducerConfig;
use super::delivery::{DeliveryListener, ProducerInterceptor};
use super::metrics::ProducerSensors;
use super::sequences::Identity;
use super::transaction_state::TransactionState;
use crate::client::Client;

/// The state that a producer's handles and its sender share.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) config: ProducerConfig,
    pub(super) accumulator: Accumulator,
    pub(super) sensors: ProducerSensors,
    pub(super) listener: Option<Arc<dyn DeliveryListener>>,
    pub(super) interceptors: Vec<Arc<dyn ProducerInterceptor>>,
    /// The identity of this producer, if it is idempotent and has requested it.
    pub(super) identity: Mutex<Option<Identity>>,
    pub(super) transaction: Option<Mutex<TransactionState>>,
    /// Notified when something may be ready to send.
    pub(super) wake_sender: Notify,
    pub(super) is_closed: AtomicBool,
    /// The remaining batches fail instead of being sent.
    pub(super) is_aborted: AtomicBool,
    pub(super) sender_ended: ottla_sync::SetOnce<()>,
}

impl Shared {
    pub(super) async fn flush(&self) {
        let (_guard, incomplete) = self.accumulator.begin_flush();
        self.wake_sender.notify_one();
        for completion in incomplete {
            completion.wait().await;
        }
    }
}
