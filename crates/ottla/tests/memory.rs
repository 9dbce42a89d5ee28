//! The memory that clients can make the real binary use, and its release.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ottla_testkit::{BrokerBuilder, BrokerProcess};

const MIB: u64 = 1024 * 1024;
/// The maximum permitted by `socket.request.max.bytes`.
const ANNOUNCED_BYTES: u32 = 100 * 1024 * 1024;

fn resident_bytes(broker: &BrokerProcess) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", broker.pid()));
    let statm = statm.expect("the broker runs");
    let pages = statm.split(' ').nth(1).expect("the resident pages");
    pages.parse::<u64>().expect("a number") * 4096
}

/// The broker's memory without connections, shortly after its start.
fn idle_bytes(broker: &BrokerProcess) -> u64 {
    std::thread::sleep(Duration::from_secs(1));
    resident_bytes(broker)
}

/// Connections that each announce a request of 100 MB and send this much of it, as far as the
/// broker reads it.
fn half_frames(broker: &BrokerProcess, connections: usize, bytes: usize) -> Vec<TcpStream> {
    let chunk = vec![0; 64 * 1024];
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
        let timeout = Some(Duration::from_millis(20));
        stream.set_write_timeout(timeout).expect("a socket");
        let length = stream.write_all(&ANNOUNCED_BYTES.to_be_bytes());
        length.expect("the socket's buffer is empty");
        for _ in 0..bytes / chunk.len() {
            match stream.write(&chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("closed: {error}"),
            }
        }
        open.push(stream);
    }
    open
}

/// Waits until the memory of a burst is released.
fn shrinks_to(broker: &BrokerProcess, bytes: u64) {
    let began = Instant::now();
    while resident_bytes(broker) > bytes {
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(30),
            "it still has {} MiB of {} MiB",
            resident_bytes(broker) / MIB,
            bytes / MIB
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether a new client receives an ApiVersions response.
fn answers(broker: &BrokerProcess) -> bool {
    let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
    let timeout = Some(Duration::from_secs(10));
    stream.set_read_timeout(timeout).expect("a socket");
    // ApiVersions v0, correlation ID 7, null client ID.
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
    stream.write_all(&request).expect("it is read");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).is_ok() && answer[4..] == [0, 0, 0, 7]
}

#[test]
fn half_received_requests_count_and_their_memory_comes_back() {
    let bound = 128 * MIB;
    let broker = BrokerBuilder::new()
        .property("queued.max.request.bytes", &bound.to_string())
        .start();
    let idle = idle_bytes(&broker);

    let open = half_frames(&broker, 400, 2 * MIB as usize);
    let held = resident_bytes(&broker);
    assert!(
        held < bound + idle + 64 * MIB,
        "{} MiB with a bound of {} MiB",
        held / MIB,
        bound / MIB
    );
    assert!(answers(&broker), "those within the bound go on");
    drop(open);
    shrinks_to(&broker, 2 * idle);
}

/// The default limit is an eighth of the machine's memory. Requests below it are read, and their
/// memory is released as well.
#[test]
fn the_memory_of_a_burst_below_the_bound_comes_back() {
    let broker = BrokerBuilder::new().start();
    let idle = idle_bytes(&broker);
    let open = half_frames(&broker, 100, 2 * MIB as usize);
    let held = resident_bytes(&broker);
    assert!(
        held > idle + 100 * MIB,
        "it has read them: {} MiB",
        held / MIB
    );
    drop(open);
    shrinks_to(&broker, 2 * idle);
}
