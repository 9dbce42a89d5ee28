//! How a connection waits for bytes of its peer, takes memory for them, and reads them.
//!
//! A large frame arrives in pieces. Each piece that is read on its own costs a wake-up, a call and the
//! set-up of the next wait, so a wait in the middle of such a frame is for its rest. This is only a
//! hint to the kernel, which reports less if it has no room for more, and always an end or an error of
//! the stream. What a slow peer has sent is read after a short while, because it shows that the peer
//! is neither idle nor stalled.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::error::ConnectionError;
use super::scarce_memory::stalled;
use super::turn::Turn;
use super::{BUDGETED_BYTES, Session, overdue_login};
use crate::frame::Front;
use crate::login::Login;
use crate::request_memory::Covered;
use crate::service::Service;

/// The most bytes that one wait is for. The kernel's initial receive buffer has room for them. With 1,
/// every wait ends with the first byte.
const MOST_AWAITED_BYTES: usize = 64 * 1024;
/// After this time, a wait for the rest of a frame ends with any byte.
pub(super) const REST_WITHIN: Duration = Duration::from_millis(100);

/// How many bytes a wait is for. `covered` is the part of the frame that may be read.
fn awaited_bytes(front: &Front, covered: Option<usize>) -> usize {
    let (Front::Partial { missing }, Some(covered)) = (front, covered) else {
        return 1;
    };
    match covered.min(*missing).min(MOST_AWAITED_BYTES) {
        // A small rest arrives in one piece.
        ..BUDGETED_BYTES => 1,
        bytes => bytes,
    }
}

async fn too_late() {
    ottla_sync::time::sleep(REST_WITHIN).await;
}

impl<S: Service> Session<S> {
    /// Reads from the socket. `None` if a response became ready, or the connection has to end,
    /// before anything arrived.
    pub(super) async fn read_or_wake(
        &mut self,
        front: &Front,
    ) -> Result<Option<usize>, ConnectionError> {
        let (frames, stream) = (&mut self.frames, &mut self.stream);
        let connection = &self.connection;
        let mut woken = pin!(connection.woken());
        let covered = self.memory.as_ref().map(Covered::unread);
        let memory = Login::frame_memory(self.login.as_ref(), &self.network);
        let mut stalled = pin!(stalled(memory, covered.is_some(), 0));
        let mut overdue = pin!(Login::overdue(self.login.as_ref()));
        let is_low = Login::is_memory_low(self.login.as_ref(), &self.network);
        let mut has_waited = false;
        let awaited = awaited_bytes(front, covered);
        let mut late = pin!(too_late());
        let mut awaits_rest = false;
        let read = poll_fn(|context| {
            if let Poll::Ready(read) =
                frames.poll_read_from(context, stream, front, covered, is_low)
            {
                return Poll::Ready(read.map(Some).map_err(ConnectionError::from));
            }
            frames.shrink(connection.is_quiet() || is_low);
            if !has_waited && awaited > 1 {
                awaits_rest = stream.await_bytes(awaited);
            }
            has_waited = true;
            if awaits_rest && late.as_mut().poll(context).is_ready() {
                stream.await_bytes(1);
                awaits_rest = false;
            }
            if !awaits_rest && stalled.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(ConnectionError::Stalled));
            }
            if overdue.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(overdue_login()));
            }
            woken.as_mut().poll(context).map(|()| Ok(None))
        })
        .await;
        if awaits_rest {
            stream.await_bytes(1);
        }
        if let (Ok(Some(read)), Some(memory)) = (&read, &mut self.memory) {
            memory.on_read(*read);
        }
        if has_waited {
            self.turn = Turn::default();
        }
        read
    }

    /// Reserves memory for the next bytes of a large frame. Waits for data before it waits for
    /// memory, so that a peer that sends nothing reserves nothing. Returns false if the connection
    /// was woken during the wait.
    pub(super) async fn take_memory(&mut self, front: &Front) -> Result<bool, ConnectionError> {
        let Front::Partial { missing } = *front else {
            return Ok(true);
        };
        let is_covered = match &self.memory {
            Some(covered) => covered.unread() > 0,
            None => missing < BUDGETED_BYTES,
        };
        if is_covered {
            return Ok(true);
        }
        let budget = Login::frame_memory(self.login.as_ref(), &self.network);
        ottla_sync::select! {
            biased;
            readable = self.stream.readable() => readable?,
            () = self.connection.woken() => return Ok(false),
            () = Login::overdue(self.login.as_ref()) => return Err(overdue_login()),
            () = stalled(budget, self.memory.is_some(), 0) => return Err(ConnectionError::Stalled),
        }
        let has_memory = self.memory.is_some();
        let covered = self.memory.get_or_insert_default();
        if !budget.try_cover(covered, missing) {
            self.send_ready().await?;
            let budget = Login::frame_memory(self.login.as_ref(), &self.network);
            let covered = self.memory.get_or_insert_default();
            ottla_sync::select! {
                biased;
                () = budget.cover(covered, missing) => {}
                // Otherwise requests that each hold a part and wait for the rest could block each
                // other forever.
                () = stalled(budget, has_memory, 1) => return Err(ConnectionError::Stalled),
                () = Login::overdue(self.login.as_ref()) => return Err(overdue_login()),
                () = self.connection.closed() => return Err(ConnectionError::Closed),
            }
        }
        Ok(true)
    }
}
