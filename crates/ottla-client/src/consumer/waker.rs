//! A handle that wakes up a waiting consumer.

use std::sync::Arc;

use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicBool, Ordering};

/// Wakes up a consumer that waits in a poll, from any thread.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
/// use ottla_client::ClientError;
///
/// let waker = consumer.waker();
/// std::thread::spawn(move || waker.wake_up());
/// match consumer.poll(Duration::from_secs(60)).await {
///     Err(ClientError::WokenUp) => println!("woken up"),
///     polled => println!("{} records", polled?.len()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, Debug)]
pub struct ConsumerWaker {
    woken: Arc<(AtomicBool, Notify)>,
}

impl ConsumerWaker {
    /// Makes the current or the next waiting poll fail with
    /// [`ClientError::WokenUp`](crate::ClientError::WokenUp).
    ///
    /// ```no_run
    /// # fn example(waker: &ottla_client::ConsumerWaker) {
    /// waker.wake_up();
    /// # }
    /// ```
    pub fn wake_up(&self) {
        let (is_woken, notify) = &*self.woken;
        is_woken.store(true, Ordering::Release);
        notify.notify_one();
    }

    pub(crate) fn take(&self) -> bool {
        self.woken.0.swap(false, Ordering::AcqRel)
    }

    pub(crate) async fn notified(&self) {
        self.woken.1.notified().await;
    }

    /// Completes when the consumer is woken up, and consumes that. Cancel-safe.
    pub(super) async fn woken(&self) {
        while !self.take() {
            self.notified().await;
        }
    }
}
