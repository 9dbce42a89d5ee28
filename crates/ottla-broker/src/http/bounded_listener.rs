//! A listener that lets so many connections in and no more, and ends those on which nothing happens, so that the
//! HTTP port cannot take the open files and the memory that clients need.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at once; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// Longer than scrapers wait between two looks, mostly.
const IDLE: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub(super) struct BoundedListener {
    listener: TcpListener,
    room: Arc<Semaphore>,
    idle: Duration,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        BoundedListener::with_limits(listener, MAX_CONNECTIONS, IDLE)
    }

    fn with_limits(listener: TcpListener, connections: usize, idle: Duration) -> Self {
        BoundedListener {
            listener,
            room: Arc::new(Semaphore::new(connections)),
            idle,
        }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        let place = Arc::clone(&self.room).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let stream = BoundedStream {
            stream,
            idle: self.idle,
            ends: Box::pin(tokio::time::sleep(self.idle)),
            _place: place,
        };
        (stream, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that gives its place back when it is dropped.
#[derive(Debug)]
pub(super) struct BoundedStream {
    stream: TcpStream,
    idle: Duration,
    /// When it ends unless something comes before.
    ends: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl BoundedStream {
    /// What an operation came to, or the end of a connection on which nothing has happened for too long.
    fn or_idle<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.ends.as_mut().reset(Instant::now() + self.idle);
            return polled;
        }
        match self.ends.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.or_idle(context, polled)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_idle(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_over_the_bound_waits_and_an_idle_one_ends() {
        let bound = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = bound.local_addr().expect("an address");
        let idle = Duration::from_millis(200);
        let mut listener = BoundedListener::with_limits(bound, 1, idle);
        let _first = TcpStream::connect(address).await.expect("connected");
        let _second = TcpStream::connect(address).await.expect("connected");
        let (mut held, _) = listener.accept().await;
        let more = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(more.is_err(), "there is room for one only");
        let ended = held.read_u8().await.expect_err("nothing was sent");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(held);
        listener.accept().await;
    }
}
