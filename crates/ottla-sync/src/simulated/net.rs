//! Sockets of the simulated network of the caller's host, or of the system.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::tcp;

use crate::kernel::sockets;
pub use crate::kernel::sockets::ListenOptions;
// Simulated connections have no TLS.
pub use crate::kernel::tls::{attach_tls, loopback_pair, send_tls_record, set_tls_send_key};
use crate::simulation::state::connection::Connection;
use crate::simulation::state::network::{Backlog, Route};
use crate::simulation::trace::Op;
use crate::simulation::world::{self, World};
use crate::time;

/// Interval of connection attempts to a host that does not answer.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// Default number of connections that wait to be accepted.
const BACKLOG: usize = 1024;
/// Maximum number of bytes per `sendfile` call.
const SEND_FILE_BYTES: usize = 1 << 16;

/// As tokio's trait of this name, as far as the product uses it.
pub trait ToSocketAddrs: tokio::net::ToSocketAddrs {
    /// The host name and the port.
    fn named(&self) -> io::Result<(String, u16)>;
}

impl ToSocketAddrs for SocketAddr {
    fn named(&self) -> io::Result<(String, u16)> {
        Ok((self.ip().to_string(), self.port()))
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn named(&self) -> io::Result<(String, u16)> {
        Ok((self.0.to_owned(), self.1))
    }
}

impl ToSocketAddrs for &str {
    fn named(&self) -> io::Result<(String, u16)> {
        let parts = self.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = parts.ok_or(io::ErrorKind::InvalidInput)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok((host.to_owned(), port))
    }
}

impl ToSocketAddrs for &String {
    fn named(&self) -> io::Result<(String, u16)> {
        self.as_str().named()
    }
}

impl ToSocketAddrs for String {
    fn named(&self) -> io::Result<(String, u16)> {
        self.as_str().named()
    }
}

fn resolve_simulated(host: &str, port: u16) -> io::Result<SocketAddr> {
    world::switch_point(Op::Net);
    let address = world::world().resolve(host);
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "no host has this name");
    Ok(SocketAddr::new(address.ok_or_else(unknown)?, port))
}

/// Resolves a name.
pub async fn lookup_host(name: impl ToSocketAddrs) -> io::Result<impl Iterator<Item = SocketAddr>> {
    let addresses: Vec<SocketAddr> = if world::is_simulated() {
        let (host, port) = name.named()?;
        vec![resolve_simulated(&host, port)?]
    } else {
        tokio::net::lookup_host(name).await?.collect()
    };
    Ok(addresses.into_iter())
}

/// Resolves a name. Blocks.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match world::is_simulated() {
        true => Ok(vec![resolve_simulated(host, port)?]),
        false => sockets::resolve(host, port),
    }
}

/// Whether the machine has IPv6 addresses. Simulated machines have none.
pub fn has_ipv6() -> bool {
    !world::is_simulated() && sockets::has_ipv6()
}

pub struct TcpListener(ListenerKind);

enum ListenerKind {
    Tokio(tokio::net::TcpListener),
    Simulated(Arc<Backlog>),
}

/// As `kernel::sockets::BoundSocket`.
#[derive(Debug)]
pub struct BoundSocket(BoundKind);

#[derive(Debug)]
enum BoundKind {
    System(sockets::BoundSocket),
    /// Refuses connections until it listens.
    Simulated(TcpListener),
}

impl BoundSocket {
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            BoundKind::System(socket) => socket.local_addr(),
            BoundKind::Simulated(listener) => listener.local_addr(),
        }
    }

    pub fn listen(self) -> io::Result<TcpListener> {
        match self.0 {
            BoundKind::System(socket) => Ok(TcpListener(ListenerKind::Tokio(socket.listen()?))),
            BoundKind::Simulated(listener) => {
                if let ListenerKind::Simulated(backlog) = &listener.0 {
                    backlog.waiting.lock().is_listening = true;
                }
                Ok(listener)
            }
        }
    }
}

pub fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<BoundSocket> {
    let kind = if world::is_simulated() {
        let listener = bind_simulated(address, options.backlog.max(1) as usize)?;
        BoundKind::Simulated(listener)
    } else {
        BoundKind::System(sockets::bind(address, options)?)
    };
    Ok(BoundSocket(kind))
}

fn bind_simulated(address: SocketAddr, backlog: usize) -> io::Result<TcpListener> {
    world::switch_point(Op::Net);
    let backlog = world::world().bind(address, backlog);
    let backlog = backlog.ok_or(io::ErrorKind::AddrInUse)?;
    Ok(TcpListener(ListenerKind::Simulated(backlog)))
}

impl TcpListener {
    pub async fn bind(name: impl ToSocketAddrs) -> io::Result<TcpListener> {
        if world::is_simulated() {
            let (host, port) = name.named()?;
            let bound = bind_simulated(resolve_simulated(&host, port)?, BACKLOG)?;
            return BoundSocket(BoundKind::Simulated(bound)).listen();
        }
        let listener = tokio::net::TcpListener::bind(name).await?;
        Ok(TcpListener(ListenerKind::Tokio(listener)))
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            ListenerKind::Tokio(listener) => listener.local_addr(),
            ListenerKind::Simulated(backlog) => Ok(backlog.address),
        }
    }

    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let backlog = match &self.0 {
            ListenerKind::Tokio(listener) => {
                let (stream, address) = listener.accept().await?;
                return Ok((TcpStream(StreamKind::Tokio(stream)), address));
            }
            ListenerKind::Simulated(backlog) => backlog,
        };
        world::switch_point(Op::Net);
        let (connection, address) = std::future::poll_fn(|context| {
            let mut waiting = backlog.waiting.lock();
            match waiting.connections.pop_front() {
                Some(accepted) => Poll::Ready(accepted),
                None => {
                    waiting.wakers.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        let side = Side::new(connection, 1);
        Ok((TcpStream(StreamKind::Simulated(side)), address))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        if let ListenerKind::Simulated(backlog) = &self.0
            && world::is_simulated()
        {
            let world = world::world();
            world.unlisten(backlog);
            let waiting = std::mem::take(&mut *backlog.waiting.lock());
            for (connection, _) in waiting.connections {
                connection.close(&world, 1);
            }
        }
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpListener {{ {:?} }}", self.local_addr())
    }
}

/// One side of a simulated connection; dropping it closes the side.
struct Side {
    connection: Arc<Connection>,
    side: usize,
}

impl Side {
    fn new(connection: Arc<Connection>, side: usize) -> Arc<Side> {
        Arc::new(Side { connection, side })
    }

    /// The kernel does nothing for a dead process.
    fn check(&self) -> io::Result<()> {
        match !world::is_simulated() || world::is_dying() {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }

    /// Waits until the connection is ready for an operation.
    async fn until(
        &self,
        poll: impl Fn(&Connection, &World, usize, &Context<'_>) -> Poll<()>,
    ) -> io::Result<()> {
        self.check()?;
        let poll =
            |context: &mut Context<'_>| poll(&self.connection, &world::world(), self.side, context);
        std::future::poll_fn(poll).await;
        Ok(())
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        world::switch_point(Op::Net);
        self.check()?;
        self.connection
            .try_write(&world::world(), self.side, slices)
    }

    fn poll_read(&self, context: &Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        world::switch_point(Op::Net);
        self.check()?;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let world = world::world();
        ready!(self.connection.poll_readable(&world, self.side, context));
        let limit = buffer.remaining();
        let take = |bytes: &[u8]| buffer.put_slice(bytes);
        let read = self.connection.try_read(&world, self.side, limit, take);
        Poll::Ready(read.map(drop))
    }

    fn poll_write(&self, context: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let world = world::world();
                    ready!(self.connection.poll_writable(&world, self.side, context));
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn shut_down(&self) {
        if self.check().is_ok() {
            self.connection.end(&world::world(), self.side);
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if world::is_simulated() {
            self.connection.close(&world::world(), self.side);
        }
    }
}

pub struct TcpStream(StreamKind);

enum StreamKind {
    Tokio(tokio::net::TcpStream),
    Simulated(Arc<Side>),
}

async fn connect_simulated(address: SocketAddr) -> io::Result<TcpStream> {
    world::switch_point(Op::Net);
    loop {
        let delay = || time::sleep(world::world().link_delay());
        delay().await;
        let route = world::world().route(address);
        match route {
            Route::Listener(backlog) => {
                let stream = Side::new(world::world().connect(&backlog), 0);
                delay().await;
                return Ok(TcpStream(StreamKind::Simulated(stream)));
            }
            Route::Refused => {
                delay().await;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Route::Silence => time::sleep(CONNECT_AGAIN).await,
        }
    }
}

/// Connects with the given buffer sizes, which simulated connections ignore.
pub async fn connect_with_buffers(
    address: SocketAddr,
    send_buffer_bytes: Option<u32>,
    receive_buffer_bytes: Option<u32>,
) -> io::Result<TcpStream> {
    if world::is_simulated() {
        return connect_simulated(address).await;
    }
    let connected = sockets::connect_with_buffers(address, send_buffer_bytes, receive_buffer_bytes);
    Ok(TcpStream(StreamKind::Tokio(connected.await?)))
}

impl TcpStream {
    pub async fn connect(name: impl ToSocketAddrs) -> io::Result<TcpStream> {
        if world::is_simulated() {
            let (host, port) = name.named()?;
            return connect_simulated(resolve_simulated(&host, port)?).await;
        }
        let stream = tokio::net::TcpStream::connect(name).await?;
        Ok(TcpStream(StreamKind::Tokio(stream)))
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.peer_addr(),
            StreamKind::Simulated(side) => Ok(side.connection.parties[1 - side.side].address),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.local_addr(),
            StreamKind::Simulated(side) => Ok(side.connection.parties[side.side].address),
        }
    }

    /// The simulated network never delays sends.
    pub fn set_nodelay(&self, is_set: bool) -> io::Result<()> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.set_nodelay(is_set),
            StreamKind::Simulated(_) => Ok(()),
        }
    }

    pub async fn readable(&self) -> io::Result<()> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.readable().await,
            StreamKind::Simulated(side) => side.until(Connection::poll_readable).await,
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.writable().await,
            StreamKind::Simulated(side) => side.until(Connection::poll_writable).await,
        }
    }

    pub fn try_io<R>(
        &self,
        interest: Interest,
        work: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.try_io(interest, work),
            StreamKind::Simulated(_) => work(),
        }
    }

    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        match self.0 {
            StreamKind::Tokio(stream) => {
                let (read, write) = stream.into_split();
                (
                    OwnedReadHalf(ReadKind::Tokio(read)),
                    OwnedWriteHalf(WriteKind::Tokio(write)),
                )
            }
            StreamKind::Simulated(side) => (
                OwnedReadHalf(ReadKind::Simulated(side.clone())),
                OwnedWriteHalf(WriteKind::Simulated(side)),
            ),
        }
    }

    /// The system's stream; `None` in the simulated network.
    fn of_tokio(&self) -> Option<&tokio::net::TcpStream> {
        match &self.0 {
            StreamKind::Tokio(stream) => Some(stream),
            StreamKind::Simulated(_) => None,
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpStream {{ {:?} }}", self.peer_addr())
    }
}

/// For socket options, which simulated threads do not set.
impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            StreamKind::Tokio(stream) => stream.as_fd(),
            StreamKind::Simulated(_) => panic!("a simulated connection has no descriptor"),
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            StreamKind::Tokio(stream) => Pin::new(stream).poll_read(context, buffer),
            StreamKind::Simulated(side) => side.poll_read(context, buffer),
        }
    }
}

macro_rules! async_write {
    ($name:ident, $kind:ident) => {
        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match &mut self.get_mut().0 {
                    $kind::Tokio(stream) => Pin::new(stream).poll_write(context, bytes),
                    $kind::Simulated(side) => side.poll_write(context, &[IoSlice::new(bytes)]),
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match &mut self.get_mut().0 {
                    $kind::Tokio(stream) => Pin::new(stream).poll_write_vectored(context, slices),
                    $kind::Simulated(side) => side.poll_write(context, slices),
                }
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut self.get_mut().0 {
                    $kind::Tokio(stream) => Pin::new(stream).poll_flush(context),
                    $kind::Simulated(_) => Poll::Ready(Ok(())),
                }
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                match &mut self.get_mut().0 {
                    $kind::Tokio(stream) => Pin::new(stream).poll_shutdown(context),
                    $kind::Simulated(side) => {
                        side.shut_down();
                        Poll::Ready(Ok(()))
                    }
                }
            }
        }
    };
}

async_write!(TcpStream, StreamKind);
async_write!(OwnedWriteHalf, WriteKind);

pub struct OwnedReadHalf(ReadKind);

enum ReadKind {
    Tokio(tcp::OwnedReadHalf),
    Simulated(Arc<Side>),
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            ReadKind::Tokio(stream) => Pin::new(stream).poll_read(context, buffer),
            ReadKind::Simulated(side) => side.poll_read(context, buffer),
        }
    }
}

/// Dropping it shuts down the write side.
pub struct OwnedWriteHalf(WriteKind);

enum WriteKind {
    Tokio(tcp::OwnedWriteHalf),
    Simulated(Arc<Side>),
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if let WriteKind::Simulated(side) = &self.0 {
            side.shut_down();
        }
    }
}

pub fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    stream.of_tokio().map_or(Ok(()), sockets::set_keepalive)
}

pub fn set_send_buffer_size(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    match stream.of_tokio() {
        Some(stream) => sockets::set_send_buffer_size(stream, bytes),
        None => Ok(()),
    }
}

/// Whether the peer has closed the connection, or its direction of it.
pub fn is_closed_by_peer(stream: &TcpStream) -> bool {
    match &stream.0 {
        StreamKind::Tokio(stream) => sockets::is_closed_by_peer(stream),
        StreamKind::Simulated(side) => side
            .connection
            .is_closed_by_peer(&world::world(), side.side),
    }
}

/// One non-blocking vectored write.
pub fn send_vectored(
    stream: &TcpStream,
    slices: &[IoSlice<'_>],
    is_more: bool,
) -> io::Result<usize> {
    match &stream.0 {
        StreamKind::Tokio(stream) => sockets::send_vectored(stream, slices, is_more),
        StreamKind::Simulated(side) => side.try_write(slices),
    }
}

/// Sends from a file without blocking. 0 means the end of the file. Like the kernel, the simulation
/// reads the file when its bytes are sent.
pub fn send_file(
    stream: &TcpStream,
    file: &(impl AsFd + FileExt + ?Sized),
    position: u64,
    count: usize,
) -> io::Result<usize> {
    let side = match &stream.0 {
        StreamKind::Tokio(stream) => return sockets::send_file(stream, file, position, count),
        StreamKind::Simulated(side) => side,
    };
    side.check()?;
    let room = side.connection.room(&world::world(), side.side);
    if room == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let mut bytes = vec![0; count.min(room).min(SEND_FILE_BYTES)];
    let read = file.read_at(&mut bytes, position)?;
    match read {
        0 => Ok(0),
        _ => side.try_write(&[IoSlice::new(&bytes[..read])]),
    }
}
