//! The kernel's own TLS, for the direction of sending: it encrypts what is written to a socket, so
//! that file regions go to the peer with `sendfile`.
//!
//! Linux: `Documentation/networking/tls.rst`.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::PollFlags;

use super::sockets::states;

/// Attaches TLS to a connected socket, which stays as it is until it gets a key. Fails with
/// [`io::ErrorKind::NotFound`] if the kernel has no TLS.
pub fn attach_tls(socket: &impl AsFd) -> io::Result<()> {
    set_option(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Sets the key for sending: one of the kernel's `tls12_crypto_info_*`, as bytes.
pub fn set_tls_send_key(socket: &impl AsFd, crypto_info: &[u8]) -> io::Result<()> {
    set_option(socket, libc::SOL_TLS, libc::TLS_TX, crypto_info)
}

fn set_option(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed, and so is the value, of which the kernel reads this many
    // bytes. The kernel keeps neither pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a record that is not application data, without blocking. The kernel encrypts it after
/// everything written before. It is sent as a whole or not at all.
///
/// Fails with [`io::ErrorKind::WouldBlock`] until a third of the send buffer is free, which is more
/// than a record. If the buffer was full, the kernel's TLS still holds the end of what was written.
/// It leaves together with this record, or is lost if the connection is then closed.
pub fn send_tls_record(socket: &impl AsFd, record_type: u8, payload: &[u8]) -> io::Result<()> {
    if states(socket, PollFlags::OUT)?.is_empty() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // Aligned as a control message has to be, and larger than one with a single byte.
    let mut control = [0_u64; 8];
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: zeroes are a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: `CMSG_SPACE` only computes. `CMSG_FIRSTHDR` points to the start of `control`, which is
    // large enough for the header and the byte behind it, and aligned. `sendmsg` reads the payload
    // and `control`, and keeps no pointer; both are alive, and the descriptor is borrowed.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(header) = record_type;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags)
    };
    match usize::try_from(sent) {
        Ok(sent) if sent == payload.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Two ends of a connection over loopback, to try options with.
pub fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let connected = TcpStream::connect(listener.local_addr()?)?;
    Ok((connected, listener.accept()?.0))
}
