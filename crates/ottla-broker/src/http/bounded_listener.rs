//! An HTTP listener with a bounded number of connections, so that the HTTP port cannot use up file
//! handles and memory that clients need. Connections that do not send a request are closed, so that
//! they cannot keep out a health check: if all slots are taken, the connection that has owed a
//! request for longest loses its slot to a new one ([`Places`]).
//!
//! Invariant: a connection keeps its slot for a bounded time without a complete request being
//! answered, however many bytes it sends or receives. The head of a request must arrive within one
//! limit; after that, another limit counts from the last byte read.

mod places;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::serve::Listener;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

use places::{Place, Places};

/// The maximum number of connections. A further connection replaces a connection whose request is
/// incomplete, or waits in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;
/// The maximum time for the head of a request. Also the maximum idle time between two requests;
/// clients that poll less often reconnect.
const HEAD: Duration = Duration::from_secs(2);
/// The minimum time that a connection gets even if all slots are taken. It also bounds the rate at
/// which a flood of incomplete requests is accepted, and so its cost.
const LEAST: Duration = Duration::from_millis(20);
/// The maximum time from the head of a request until the client has read the response.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Places>,
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
            places: Arc::new(Places::new(limits.connections, LEAST)),
            limits,
        }
    }

    /// Serves connections forever.
    pub(super) async fn serve(mut self, router: Router) {
        // `axum::serve` would wait for the head of a request forever.
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head);
        let router = TowerToHyperService::new(router);
        loop {
            let stream = self.accept().await;
            let place = Arc::clone(&stream.place);
            let router = router.clone();
            let service = {
                let place = Arc::clone(&place);
                service_fn(move |request| {
                    place.on_request();
                    let answer = router.call(request);
                    let place = Arc::clone(&place);
                    async move {
                        let answer = answer.await?;
                        Ok::<_, Infallible>(answer.map(|body| Answer { body, place }))
                    }
                })
            };
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // Only the peer is affected by how the connection ends.
            tokio::spawn(async move {
                tokio::select! {
                    _ = connection => {}
                    () = place.given_away() => {}
                }
            });
        }
    }

    /// Returns the next connection when there is a slot for it.
    async fn accept(&mut self) -> BoundedStream {
        let (stream, _) = Listener::accept(&mut self.listener).await;
        BoundedStream {
            stream,
            answer: self.limits.answer,
            place: Arc::new(self.places.take().await),
            ends: Box::pin(tokio::time::sleep(self.limits.answer)),
        }
    }
}

/// The body of a response. Dropped when there is nothing more to send.
struct Answer {
    body: Body,
    place: Arc<Place>,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.place.on_answered();
    }
}

/// A connection that fails when its time is over.
#[derive(Debug)]
struct BoundedStream {
    stream: TcpStream,
    place: Arc<Place>,
    answer: Duration,
    /// When the connection ends unless something is read before. Writes do not extend it, because a
    /// response that is read byte by byte would never end.
    ends: Pin<Box<Sleep>>,
}

impl BoundedStream {
    /// The result of an operation, or an error if the time of the connection is over.
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
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            self.place.on_flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A listener with small limits, and its address.
    async fn listen(limits: Limits) -> (BoundedListener, SocketAddr) {
        let bound = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = bound.local_addr().expect("an address");
        (BoundedListener::with_limits(bound, limits), address)
    }

    #[tokio::test]
    async fn a_connection_over_the_limit_waits_and_an_idle_one_is_closed() {
        let (mut listener, address) = listen(Limits {
            connections: 1,
            head: HEAD,
            answer: Duration::from_millis(200),
        })
        .await;
        let _first = TcpStream::connect(address).await.expect("connected");
        let _second = TcpStream::connect(address).await.expect("connected");
        let _third = TcpStream::connect(address).await.expect("connected");
        let mut held = listener.accept().await;
        held.place.on_request();
        let more = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(more.is_err(), "there is room for one only");
        let ended = held.read_u8().await.expect_err("nothing was sent");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(held);
        listener.accept().await;
    }

    /// Sends bytes one by one, one every 20 ms, until the connection fails.
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
    async fn incomplete_requests_do_not_block_other_clients() {
        let (listener, address) = listen(Limits {
            connections: 2,
            head: Duration::from_secs(3600),
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
        let answer = tokio::time::timeout(Duration::from_secs(60), ask).await;
        let answer = answer.expect("the half requests are given up");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.abort();
        trickling.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn a_response_read_byte_by_byte_times_out() {
        let (mut listener, address) = listen(Limits {
            connections: 1,
            head: HEAD,
            answer: Duration::from_millis(200),
        })
        .await;
        let mut slow = TcpStream::connect(address).await.expect("connected");
        let mut held = listener.accept().await;
        let reading = tokio::spawn(async move {
            // Reads so much at a time that the sender's buffer has room again and again before the
            // time is over.
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
        let ended = tokio::time::timeout(Duration::from_secs(60), writing).await;
        assert_eq!(ended.expect("it ends"), io::ErrorKind::TimedOut);
        reading.abort();
    }
}
