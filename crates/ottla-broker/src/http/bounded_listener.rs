//! A listener that lets so many connections in and no more, so that the HTTP port cannot take the open files and the
//! memory that clients need, and ends those that do not come to the point, so that who asks whether the broker is
//! well is not kept out by others.
//!
//! Invariant: a connection keeps its place for a bounded time without having a whole request answered, however many
//! bytes come or go meanwhile: the head of a request is given so long, and the rest so long from the last byte read.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at once; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// From when a request may begin until its head is there. Also what a connection may be silent between two requests:
/// who asks less often connects anew.
const HEAD: Duration = Duration::from_secs(2);
/// For a request whose head is there, until its answer has been taken.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct BoundedListener {
    listener: TcpListener,
    room: Arc<Semaphore>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    head: Duration,
    answer: Duration,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        let limits = Limits {
            connections: MAX_CONNECTIONS,
            head: HEAD,
            answer: ANSWER,
        };
        BoundedListener::with_limits(listener, limits)
    }

    fn with_limits(listener: TcpListener, limits: Limits) -> Self {
        BoundedListener {
            listener,
            room: Arc::new(Semaphore::new(limits.connections)),
            limits,
        }
    }

    /// Answers what comes in, for ever.
    pub(super) async fn serve(mut self, router: Router) {
        // `axum::serve` would wait for the head of a request without end.
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head);
        loop {
            let (stream, _) = self.accept().await;
            let service = TowerToHyperService::new(router.clone());
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // How it ends concerns nobody here but its peer.
            tokio::spawn(async move { drop(connection.await) });
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
            answer: self.limits.answer,
            ends: Box::pin(tokio::time::sleep(self.limits.answer)),
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
    answer: Duration,
    /// When it ends unless something comes before. What goes out does not move it: an answer that is taken a byte at
    /// a time would never end.
    ends: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl BoundedStream {
    /// What an operation came to, or the end of a connection that has had its time.
    fn or_over<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(_) => polled,
            Poll::Pending => self
                .ends
                .as_mut()
                .poll(context)
                .map(|()| Err(io::ErrorKind::TimedOut.into())),
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
        if polled.is_ready() {
            let ends = Instant::now() + self.answer;
            self.ends.as_mut().reset(ends);
        }
        self.or_over(context, polled)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_over(context, polled)
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
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A listener with little room, and its address.
    async fn listen(limits: Limits) -> (BoundedListener, SocketAddr) {
        let bound = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = bound.local_addr().expect("an address");
        (BoundedListener::with_limits(bound, limits), address)
    }

    #[tokio::test]
    async fn a_connection_over_the_bound_waits_and_an_idle_one_ends() {
        let (mut listener, address) = listen(Limits {
            connections: 1,
            head: HEAD,
            answer: Duration::from_millis(200),
        })
        .await;
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

    /// Sends bytes one by one, one every 20 ms, for as long as they are taken.
    async fn trickle(address: SocketAddr, bytes: impl Iterator<Item = u8>) {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        for byte in bytes {
            if stream.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn half_requests_do_not_keep_others_out() {
        let (listener, address) = listen(Limits {
            connections: 2,
            head: Duration::from_millis(300),
            answer: ANSWER,
        })
        .await;
        let router = Router::new().route("/healthz", get(async || "well"));
        let server = tokio::spawn(listener.serve(router));
        let half = || b"GET /met".iter().copied().chain(std::iter::repeat(b'r'));
        let trickling = [0, 1].map(|_| tokio::spawn(trickle(address, half())));
        tokio::time::sleep(Duration::from_millis(100)).await;

        let ask = async {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            let request = b"GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            answer
        };
        let answer = tokio::time::timeout(Duration::from_secs(5), ask).await;
        let answer = answer.expect("the half requests are given up");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.abort();
        trickling.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn an_answer_taken_a_byte_at_a_time_ends() {
        let (mut listener, address) = listen(Limits {
            connections: 1,
            head: HEAD,
            answer: Duration::from_millis(200),
        })
        .await;
        let mut slow = TcpStream::connect(address).await.expect("connected");
        let (mut held, _) = listener.accept().await;
        let reading = tokio::spawn(async move {
            // So much at once that the sender's buffer has room again and again before the time is over.
            let mut some = vec![0; 256 * 1024];
            while slow.read(&mut some).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let piece = vec![0; 64 * 1024];
        let writing = async {
            loop {
                if let Err(error) = held.write_all(&piece).await {
                    return error.kind();
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(10), writing).await;
        assert_eq!(ended.expect("it ends"), io::ErrorKind::TimedOut);
        reading.abort();
    }
}
