//! Socket calls that tokio does not offer.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Options of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// `None` leaves the size to the kernel.
    pub receive_buffer_bytes: Option<usize>,
    pub backlog: i32,
}

/// A socket that has its address and does not listen yet: connections are refused. No other socket
/// can be bound to the address.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    backlog: i32,
}

impl BoundSocket {
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?.as_socket();
        address.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Starts to listen: the kernel accepts connections into the backlog.
    pub fn listen(self) -> io::Result<TcpListener> {
        // Connections inherit it. With it, a socket can be bound after a restart although old
        // connections of the address remain.
        self.socket.set_reuse_address(true)?;
        self.socket.listen(self.backlog)?;
        TcpListener::from_std(self.socket.into())
    }
}

/// Binds a socket for a listener. With an IPv6 address, it will accept IPv4 connections too. Fails
/// if another socket has the address.
pub fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<BoundSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // The receive buffer must be set before `listen`, because it determines the window scale.
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&address.into())?;
    // Otherwise, another process that reuses addresses could bind the same address, and the one that
    // listens later would fail: after the recovery of its logs.
    socket.set_reuse_address(false)?;
    Ok(BoundSocket {
        socket,
        backlog: options.backlog,
    })
}

/// Whether the peer has closed the connection, or its direction of it, even if data that it sent
/// before is still to be read.
pub fn is_closed_by_peer(stream: &TcpStream) -> bool {
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let now = states(stream, PollFlags::RDHUP);
    now.is_ok_and(|now| now.intersects(closed))
}

/// Which of these states a socket has at this time, and whether it has failed. Does not wait.
pub(super) fn states(socket: &impl AsFd, asked: PollFlags) -> io::Result<PollFlags> {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut look = [PollFd::new(socket, asked)];
    poll(&mut look, Some(&at_once))?;
    Ok(look[0].revents())
}

/// Connects with the given buffer sizes. They are set before, because the first packet determines
/// the maximum window.
pub async fn connect_with_buffers(
    address: SocketAddr,
    send_buffer_bytes: Option<u32>,
    receive_buffer_bytes: Option<u32>,
) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(bytes) = send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect(address).await
}

pub fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_keepalive(true)
}

pub fn set_send_buffer_size(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    SockRef::from(stream).set_send_buffer_size(bytes)
}

/// Whether the machine has IPv6 addresses.
pub fn has_ipv6() -> bool {
    std::net::UdpSocket::bind("[::]:0").is_ok()
}

/// Resolves a name. Blocks.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// One non-blocking vectored write. With `is_more` (`MSG_MORE`), the kernel delays a partial packet
/// for more data.
pub fn send_vectored(
    stream: &TcpStream,
    slices: &[IoSlice<'_>],
    is_more: bool,
) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, is_more);
    let control = &mut SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(stream, slices, control, flags)?)
}

/// Sends from a file without copying and without blocking (`sendfile`). 0 means the end of the
/// file.
pub fn send_file(
    stream: &TcpStream,
    file: &(impl AsFd + ?Sized),
    position: u64,
    count: usize,
) -> io::Result<usize> {
    let mut position = position;
    Ok(rustix::fs::sendfile(
        stream,
        file,
        Some(&mut position),
        count,
    )?)
}
