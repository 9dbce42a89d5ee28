//! The parts of the work at a store that block a thread: reads and writes of files, decryption, compression.
//!
//! Such a part cannot be cancelled: if its caller goes, the thread continues. So the part itself holds the permit of the
//! work. Otherwise the permits would not limit how much runs: a directory that hangs would take a thread for each caller
//! that gives up and comes again.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use ottla_sync::task;

use crate::error::RemoteStorageError;

/// Allows a piece of work at a store. What it was made from is dropped when the last part of the work has ended. The default
/// limits nothing.
#[derive(Clone, Default)]
pub struct Permit(Option<Arc<dyn Any + Send + Sync>>);

impl Permit {
    pub fn new(held: impl Any + Send + Sync) -> Permit {
        Permit(Some(Arc::new(held)))
    }

    /// Whether it limits anything.
    pub fn limits(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("limits", &self.limits())
            .finish()
    }
}

/// Runs a part of the work of this permit on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    permit: Permit,
    part: impl FnOnce() -> Result<T, RemoteStorageError> + Send + 'static,
) -> Result<T, RemoteStorageError> {
    let holding = move || {
        let _permit = permit;
        part()
    };
    match task::spawn_blocking(holding).await {
        Ok(result) => result,
        Err(error) => Err(RemoteStorageError::cancelled(
            "run work at the store",
            error,
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use ottla_sync::{Semaphore, time};

    use super::*;

    #[test]
    fn a_part_on_threads_that_have_ended_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let threads = runtime.handle().clone();
        drop(runtime);
        let _entered = threads.enter();
        let part = blocking(Permit::default(), || Ok(()));
        let error = part.now_or_never().expect("it has ended").unwrap_err();
        assert!(error.is_retriable(), "{error}");
        assert_eq!(error.to_string(), "run work at the store: the broker stops");
    }

    #[tokio::test]
    async fn a_panic_of_a_part_continues_in_its_caller() {
        let panics = || -> Result<(), RemoteStorageError> { panic!("of the part") };
        let part = std::panic::AssertUnwindSafe(blocking(Permit::default(), panics));
        let panic = part.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the part"));
    }

    #[tokio::test]
    async fn a_part_holds_the_permit_after_its_caller_has_gone() {
        let turns = Arc::new(Semaphore::new(1));
        let permit = Permit::new(Arc::clone(&turns).acquire_owned().await.unwrap());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let part = blocking(permit, move || {
            let _ = ended.recv();
            Ok(())
        });
        let soon = Duration::from_millis(20);
        time::timeout(soon, part).await.unwrap_err();
        assert_eq!(turns.available_permits(), 0, "the thread still works");
        drop(end);
        let limit = Duration::from_secs(10);
        let next = time::timeout(limit, turns.acquire()).await.unwrap();
        assert!(next.is_ok());
    }
}
