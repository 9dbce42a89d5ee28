//! How a connection waits for bytes of its peer, takes memory for them, and reads them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::error::ConnectionError;
use super::scarce_memory::stalled;
use super::turn::Turn;
use super::{BUDGETED_BYTES, Session, overdue_login};
use crate::frame::Front;
use crate::login::Login;
use crate::request_memory::Covered;
use crate::service::Service;

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
        let read = poll_fn(|context| {
            if let Poll::Ready(read) =
                frames.poll_read_from(context, stream, front, covered, is_low)
            {
                return Poll::Ready(read.map(Some).map_err(ConnectionError::from));
            }
            frames.shrink(connection.is_quiet() || is_low);
            has_waited = true;
            if stalled.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(ConnectionError::Stalled));
            }
            if overdue.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(overdue_login()));
            }
            woken.as_mut().poll(context).map(|()| Ok(None))
        })
        .await;
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
