//! Leases of TCP ports on the loopback address, for nodes whose addresses must be known before they listen.
//!
//! A port that was found free is not yet safe: until the node listens, and while the node is down between two starts,
//! any other program may take it. So ports are leased, in blocks:
//!
//! 1. A process leases a block by binding the block's UDP port. Nothing sends to it; it only excludes other processes.
//! 2. The process keeps that socket until it ends. Then the kernel closes it, also after SIGKILL. Programs that it
//!    starts do not inherit the socket (it is close-on-exec), so a lease does not outlive the process.
//! 3. Within the process, no port is handed out twice.
//! 4. A process that starts nodes at ports that were chosen before leases the blocks of these ports again.
//!
//! All blocks are below the kernel's ephemeral range, so neither an outgoing connection nor a listener at port 0 gets
//! one of these ports. Ports at which a program listens that knows nothing of leases are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::{Range, RangeInclusive};
use std::sync::{LazyLock, Mutex, MutexGuard};

const FIRST: u16 = 10_000;
const BLOCKS: u16 = 680;
/// The ports of a block.
const BLOCK: u16 = 32;
/// The UDP port of the first block; those of the others follow. A server may use a leased port for UDP too, so these
/// are above all leased ports.
const FIRST_UDP: u16 = 32_000;
/// The default of the lower bound in `net.ipv4.ip_local_port_range`.
const EPHEMERAL: u16 = 32_768;
const _: () = assert!(FIRST + BLOCKS * BLOCK <= FIRST_UDP && FIRST_UDP + BLOCKS <= EPHEMERAL);
/// Processes with successive IDs start their search this many blocks apart, so that a process rarely gets a block of
/// one that has just ended. It has no common factor with [`BLOCKS`].
const APART: u32 = 61;

/// Leases `N` consecutive ports until the process ends.
///
/// # Errors
/// As [`lease_range`].
pub fn lease_ports<const N: usize>() -> io::Result<[u16; N]> {
    let first = lease_range(N as u16)?;
    Ok(std::array::from_fn(|index| first + index as u16))
}

/// Leases `count` consecutive ports until the process ends, and returns the first.
///
/// # Errors
/// `AddrNotAvailable` if other processes have leased too many; others if the system gives no socket.
pub fn lease_range(count: u16) -> io::Result<u16> {
    leases().lease(count)
}

/// Leases the blocks of ports that were chosen before, until the process ends, and returns the blocks that other
/// processes have leased. Ports outside of all blocks cannot be leased.
///
/// # Errors
/// If the system gives no socket.
pub fn lease_again(ports: impl IntoIterator<Item = u16>) -> io::Result<Vec<LeasedElsewhere>> {
    leases().lease_again(ports)
}

/// A block that another process has leased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasedElsewhere {
    pub ports: RangeInclusive<u16>,
    /// The UDP port that the process has bound.
    pub udp_port: u16,
}

/// The leases of this process.
fn leases() -> MutexGuard<'static, Leases> {
    static LEASES: LazyLock<Mutex<Leases>> = LazyLock::new(|| {
        let start = std::process::id().wrapping_mul(APART);
        Mutex::new(Leases::starting_at(start))
    });
    LEASES.lock().expect("no holder panics")
}

/// The leases of a process.
struct Leases {
    /// The block that is tried next.
    next_block: u16,
    /// The number of blocks that were not tried.
    untried: u16,
    /// Leased ports that were not handed out.
    left: Range<u16>,
    /// One socket for each leased block, by the block's number.
    blocks: BTreeMap<u16, UdpSocket>,
    /// Binds the UDP port of a block.
    bind: fn(u16) -> io::Result<UdpSocket>,
}

impl Leases {
    /// The search starts at this block, modulo [`BLOCKS`].
    fn starting_at(block: u32) -> Leases {
        Leases {
            next_block: (block % u32::from(BLOCKS)) as u16,
            untried: BLOCKS,
            left: 0..0,
            blocks: BTreeMap::new(),
            bind,
        }
    }

    fn lease(&mut self, count: u16) -> io::Result<u16> {
        loop {
            if self.left.len() < usize::from(count) {
                self.lease_block()?;
                continue;
            }
            let first = self.left.start;
            let end = first + count;
            match (first..end).rfind(|port| !is_free(*port)) {
                Some(taken) => self.left.start = taken + 1,
                None => {
                    self.left.start = end;
                    return Ok(first);
                }
            }
        }
    }

    fn lease_again(
        &mut self,
        ports: impl IntoIterator<Item = u16>,
    ) -> io::Result<Vec<LeasedElsewhere>> {
        let mut numbers = BTreeSet::new();
        for port in ports {
            if self.left.contains(&port) {
                self.left.start = port + 1;
            }
            let number = port.checked_sub(FIRST).map(|after| after / BLOCK);
            numbers.extend(number.filter(|number| *number < BLOCKS));
        }
        let mut elsewhere = Vec::new();
        for number in numbers {
            if self.blocks.contains_key(&number) {
                continue;
            }
            let udp_port = FIRST_UDP + number;
            match (self.bind)(udp_port) {
                Ok(block) => {
                    self.blocks.insert(number, block);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let first = FIRST + number * BLOCK;
                    elsewhere.push(LeasedElsewhere {
                        ports: first..=first + (BLOCK - 1),
                        udp_port,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(elsewhere)
    }

    /// Adds a block to `left`. If it does not follow the ports that are left, these are given up.
    fn lease_block(&mut self) -> io::Result<()> {
        while self.untried > 0 {
            let number = self.next_block;
            let block = match (self.bind)(FIRST_UDP + number) {
                Ok(block) => Some(block),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
                // Other blocks would fail too, for example because the process has too many open files.
                Err(error) => return Err(error),
            };
            self.next_block = (number + 1) % BLOCKS;
            self.untried -= 1;
            let Some(block) = block else {
                continue;
            };
            let start = FIRST + number * BLOCK;
            self.blocks.insert(number, block);
            if self.left.end != start {
                self.left.start = start;
            }
            self.left.end = start + BLOCK;
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!(
                "the ports from {FIRST} to {} are leased or in use",
                FIRST + BLOCKS * BLOCK - 1
            ),
        ))
    }
}

fn bind(port: u16) -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn processes_that_search_at_the_same_place_get_different_ports() {
        let mut processes = [7, 7, 8].map(Leases::starting_at);
        let mut ports = BTreeSet::new();
        for _ in 0..2 * BLOCK {
            for process in &mut processes {
                let port = process.lease(1).unwrap();
                assert!(ports.insert(port), "{port} was leased twice");
            }
        }
    }

    #[test]
    fn ports_of_one_process_differ_and_can_be_listened_on() {
        let ports: [[u16; 3]; 20] = std::array::from_fn(|_| lease_ports().unwrap());
        let listeners: Vec<_> = ports
            .iter()
            .flatten()
            .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap())
            .collect();
        assert_eq!(listeners.len(), 60);
        assert!(
            ports
                .iter()
                .all(|[first, second, third]| [first + 1, first + 2] == [*second, *third])
        );
    }

    #[test]
    fn a_range_may_be_longer_than_a_block() {
        let mut process = Leases::starting_at(0);
        let count = 3 * BLOCK + 1;
        let first = process.lease(count).unwrap();
        let next = process.lease(1).unwrap();
        assert!(!(first..first + count).contains(&next));
        // The leases of all its blocks are held.
        let mut other = Leases::starting_at(0);
        let ports = [(); 2 * BLOCK as usize].map(|()| other.lease(1).unwrap());
        assert!(
            ports
                .iter()
                .all(|port| !(first..first + count).contains(port))
        );
    }

    /// A process whose leases exclude only others of this test, not all processes of the machine.
    fn apart(block: u32) -> Leases {
        Leases {
            bind: |port| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 77), port)),
            ..Leases::starting_at(block)
        }
    }

    #[test]
    fn ports_that_were_chosen_before_are_leased_again() {
        let before = apart(400).lease(3).unwrap();
        let ports = [before, before + 2];
        let mut process = apart(400);
        // Others are in no block.
        let others = [9092, FIRST - 1, FIRST + BLOCKS * BLOCK];
        let elsewhere = process.lease_again(others.into_iter().chain(ports));
        assert_eq!(elsewhere.unwrap(), []);
        assert_eq!(process.blocks.len(), 1);
        // Neither another process nor this one hands them out.
        let mut other = apart(400);
        let theirs = [(); BLOCK as usize].map(|()| other.lease(1).unwrap());
        let own = [(); BLOCK as usize].map(|()| process.lease(1).unwrap());
        for port in ports {
            assert!(!theirs.contains(&port) && !own.contains(&port), "{port}");
        }
        let first = before - (before - FIRST) % BLOCK;
        let leased = LeasedElsewhere {
            ports: first..=first + 31,
            udp_port: FIRST_UDP + (first - FIRST) / BLOCK,
        };
        assert_eq!(other.lease_again(ports).unwrap(), [leased]);
        // Its own lease is none of another process.
        assert_eq!(process.lease_again(ports).unwrap(), []);
    }

    #[test]
    fn ports_that_are_leased_again_are_not_handed_out() {
        let mut process = apart(500);
        let first = process.lease(1).unwrap();
        assert_eq!(process.lease_again([first + 1, first + 2]).unwrap(), []);
        let next = process.lease(1).unwrap();
        assert!(next > first + 2, "{next} after {first}");
    }

    #[test]
    fn a_port_at_which_a_foreign_program_listens_is_skipped() {
        let mut process = Leases::starting_at(300);
        let before = process.lease(1).unwrap();
        let taken = before + 2;
        let _foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap();
        let first = process.lease(3).unwrap();
        assert!(!(first..first + 3).contains(&taken), "{first}");
        assert!(first > taken, "{first}");
    }

    #[test]
    fn a_system_without_sockets_is_not_one_without_free_ports() {
        let mut process = Leases::starting_at(200);
        process.bind = |_| Err(io::ErrorKind::OutOfMemory.into());
        let error = process.lease(1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let error = process.lease_again([FIRST]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        // The search continues when there are sockets again.
        process.bind = bind;
        process.lease(1).unwrap();
    }

    #[test]
    fn the_error_names_the_ports_that_were_searched() {
        let mut process = Leases::starting_at(0);
        process.untried = 0;
        let error = process.lease(1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        assert_eq!(
            error.to_string(),
            "the ports from 10000 to 31759 are leased or in use"
        );
    }
}
