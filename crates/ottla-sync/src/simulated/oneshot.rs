//! `tokio::sync::oneshot` with a switch point when the value is sent.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

pub use tokio::sync::oneshot::error;
use tokio::sync::oneshot::{self, error::*};

use crate::simulation::executor;
use crate::simulation::trace::Op;
use crate::simulation::world;

pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (Sender(sender), Receiver(receiver))
}

#[derive(Debug)]
pub struct Sender<T>(oneshot::Sender<T>);

impl<T> Sender<T> {
    #[track_caller]
    pub fn send(self, value: T) -> Result<(), T> {
        world::switch_point(Op::Send);
        self.0.send(value)
    }

    pub async fn closed(&mut self) {
        self.0.closed().await;
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

#[derive(Debug)]
pub struct Receiver<T>(oneshot::Receiver<T>);

impl<T> Receiver<T> {
    #[track_caller]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        world::switch_point(Op::Receive);
        self.0.try_recv()
    }

    #[track_caller]
    pub fn blocking_recv(self) -> Result<T, RecvError> {
        match world::is_simulated() {
            true => executor::block_on(self.0, Location::caller()),
            false => self.0.blocking_recv(),
        }
    }

    pub fn close(&mut self) {
        self.0.close();
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}
