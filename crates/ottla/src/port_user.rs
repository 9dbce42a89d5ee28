//! Which process uses a port of 127.0.0.1, for messages about a port that is not free.
//!
//! Sockets that are bound and do not listen yet are not found.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ottla_security::escaped;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};

/// The process that listens at a TCP port, such as `process 77 (java, in /srv/kafka)`. Of processes of
/// other users, only the user is known, unless this one runs as root: `a process of user ID 0`.
pub fn listener_at(port: u16) -> Option<String> {
    let entries = procfs::net::tcp().into_iter().chain(procfs::net::tcp6());
    let listening = entries
        .flatten()
        .filter(|it| matches!(it.state, TcpState::Listen) && excludes(it.local_address, port));
    let sockets: Vec<Socket> = listening
        .map(|it| Socket {
            inode: it.inode,
            user: it.uid,
        })
        .collect();
    user_of(&sockets)
}

/// The process that has bound a UDP port, as in [`listener_at`].
pub fn user_of_udp(port: u16) -> Option<String> {
    let entries = procfs::net::udp().into_iter().chain(procfs::net::udp6());
    let bound = entries
        .flatten()
        .filter(|it| excludes(it.local_address, port));
    let sockets: Vec<Socket> = bound
        .map(|it| Socket {
            inode: it.inode,
            user: it.uid,
        })
        .collect();
    user_of(&sockets)
}

/// A socket in the tables of the kernel.
struct Socket {
    inode: u64,
    /// The ID of the user who opened it.
    user: u32,
}

/// Whether a socket at this address keeps others from the port at 127.0.0.1. One at another address
/// does not, such as that of another program at ::1. The JVM binds addresses of IPv4 as ones of IPv6.
fn excludes(bound: SocketAddr, port: u16) -> bool {
    let ip = bound.ip().to_canonical();
    bound.port() == port && (ip.is_unspecified() || ip == IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The process that holds one of these sockets open; if none is visible, the user who opened the first.
fn user_of(sockets: &[Socket]) -> Option<String> {
    let first = sockets.first()?;
    let is_one = |inode: u64| sockets.iter().any(|socket| socket.inode == inode);
    let holds = |process: &Process| {
        let mut files = process.fd().into_iter().flatten().flatten();
        files.any(|file| matches!(file.target, FDTarget::Socket(inode) if is_one(inode)))
    };
    let mut processes = all_processes().into_iter().flatten().flatten();
    let found = processes.find(holds).and_then(|process| {
        // Not its arguments, which may contain passwords.
        let name = process.stat().ok()?.comm;
        let dir = process.cwd().ok().map(|dir| dir.display().to_string());
        Some(described(process.pid, &name, dir.as_deref()))
    });
    found.or_else(|| Some(format!("a process of user ID {}", first.user)))
}

/// A process names itself and its directory, and must not control the terminal with that.
fn described(pid: i32, name: &str, dir: Option<&str>) -> String {
    let dir = dir.map(|dir| format!(", in {}", escaped(dir)));
    format!(
        "process {pid} ({}{})",
        escaped(name),
        dir.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn it_finds_the_process_that_uses_a_port() {
        let this = format!("process {} (", std::process::id());
        let is_this = |user: Option<String>| user.is_some_and(|it| it.starts_with(&this));
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0"] {
            let listener = match TcpListener::bind(address) {
                // The machine may have no IPv6.
                Err(_) if address.starts_with('[') => continue,
                bound => bound.unwrap(),
            };
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
        // Nor has one that is in use at other addresses.
        let _elsewhere = TcpListener::bind(("127.0.0.2", port)).unwrap();
        let _also = TcpListener::bind(("::1", port));
        assert_eq!(listener_at(port), None);
    }

    /// No process has this inode open, as with the processes of others.
    #[test]
    fn of_a_process_that_is_not_visible_the_user_is_named() {
        let socket = Socket {
            inode: u64::MAX,
            user: 12,
        };
        let found = user_of(&[socket]);
        assert_eq!(found.as_deref(), Some("a process of user ID 12"));
        assert_eq!(user_of(&[]), None);
    }

    #[test]
    fn names_do_not_reach_the_terminal_as_they_are() {
        assert_eq!(
            described(7, "a\u{1b}[2J", Some("/b\nc")),
            r"process 7 (a\u{1b}[2J, in /b\nc)"
        );
        assert_eq!(described(7, "java", None), "process 7 (java)");
    }
}
