//! Which process uses a port of this machine, for messages about a port that is not free.
//!
//! Processes of other users, and sockets that are bound and do not listen yet, are not found.

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};

/// The process that listens at a TCP port, such as `process 77 (java, in /srv/kafka)`.
pub fn listener_at(port: u16) -> Option<String> {
    let entries = procfs::net::tcp().into_iter().chain(procfs::net::tcp6());
    let inodes = entries.flatten().filter_map(|entry| {
        let is_it = matches!(entry.state, TcpState::Listen) && entry.local_address.port() == port;
        is_it.then_some(entry.inode)
    });
    process_with(&inodes.collect::<Vec<u64>>())
}

/// The process that has bound a UDP port.
pub fn user_of_udp(port: u16) -> Option<String> {
    let entries = procfs::net::udp().into_iter().flatten();
    let inodes = entries.filter_map(|entry| {
        let is_it = entry.local_address.port() == port;
        is_it.then_some(entry.inode)
    });
    process_with(&inodes.collect::<Vec<u64>>())
}

/// The process that holds one of these sockets open.
fn process_with(inodes: &[u64]) -> Option<String> {
    if inodes.is_empty() {
        return None;
    }
    let holds = |process: &Process| {
        let mut files = process.fd().into_iter().flatten().flatten();
        files.any(|file| matches!(file.target, FDTarget::Socket(inode) if inodes.contains(&inode)))
    };
    let process = all_processes().ok()?.flatten().find(holds)?;
    // Not its arguments, which may contain passwords.
    let name = process.stat().ok()?.comm;
    let dir = process.cwd().map(|dir| format!(", in {}", dir.display()));
    Some(format!(
        "process {} ({name}{})",
        process.pid,
        dir.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn it_finds_the_process_that_uses_a_port() {
        let this = format!("process {} (", std::process::id());
        let is_this = |user: Option<String>| user.is_some_and(|it| it.starts_with(&this));
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(is_this(listener_at(port)), "{address}");
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(is_this(user_of_udp(socket.local_addr().unwrap().port())));
        let dir = std::env::current_dir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listener_at(listener.local_addr().unwrap().port()).unwrap();
        assert!(
            found.ends_with(&format!(", in {})", dir.display())),
            "{found}"
        );
    }

    #[test]
    fn a_free_port_has_no_user() {
        let [port] = ottla_testkit::lease_ports().unwrap();
        assert_eq!(listener_at(port), None);
    }
}
