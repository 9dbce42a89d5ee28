//! `tokio::sync::mpsc` with switch points at sends and receives.

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::task::{Context, Poll};

pub use tokio::sync::mpsc::error;
use tokio::sync::mpsc::{self, error::*};

use crate::simulation::executor;
use crate::simulation::trace::Op;
use crate::simulation::world;

pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(capacity);
    (Sender(sender), Receiver(receiver))
}

pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (UnboundedSender(sender), UnboundedReceiver(receiver))
}

pub struct Sender<T>(mpsc::Sender<T>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T> Sender<T> {
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        world::switch_point(Op::Send);
        self.0.send(value).await
    }

    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        world::switch_point(Op::Send);
        self.0.try_send(value)
    }

    #[track_caller]
    pub fn blocking_send(&self, value: T) -> Result<(), SendError<T>> {
        match world::is_simulated() {
            true => executor::block_on(self.send(value), Location::caller()),
            false => self.0.blocking_send(value),
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Methods without a switch point: `closed`, `is_closed`, `capacity`, `reserve`, `downgrade`.
impl<T> Deref for Sender<T> {
    type Target = mpsc::Sender<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

pub struct UnboundedSender<T>(mpsc::UnboundedSender<T>);

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        UnboundedSender(self.0.clone())
    }
}

impl<T> UnboundedSender<T> {
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        world::switch_point(Op::Send);
        self.0.send(value)
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for UnboundedSender<T> {
    type Target = mpsc::UnboundedSender<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

macro_rules! receiver {
    ($name:ident) => {
        #[derive(Debug)]
        pub struct $name<T>(mpsc::$name<T>);

        impl<T> $name<T> {
            pub async fn recv(&mut self) -> Option<T> {
                world::switch_point(Op::Receive);
                self.0.recv().await
            }

            pub async fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                world::switch_point(Op::Receive);
                self.0.recv_many(buffer, limit).await
            }

            #[track_caller]
            pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
                world::switch_point(Op::Receive);
                self.0.try_recv()
            }

            #[track_caller]
            pub fn blocking_recv(&mut self) -> Option<T> {
                match world::is_simulated() {
                    true => executor::block_on(self.recv(), Location::caller()),
                    false => self.0.blocking_recv(),
                }
            }

            pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
                self.0.poll_recv(context)
            }

            pub fn close(&mut self) {
                self.0.close();
            }

            pub fn is_closed(&self) -> bool {
                self.0.is_closed()
            }

            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            pub fn len(&self) -> usize {
                self.0.len()
            }
        }
    };
}

receiver!(Receiver);
receiver!(UnboundedReceiver);
