//! The memory that clients can make the real binary use, and its release.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ottla_protocol::ApiKey;
use ottla_testkit::{BrokerBuilder, BrokerProcess};

const MIB: u64 = 1024 * 1024;
/// The maximum permitted by `socket.request.max.bytes`.
const ANNOUNCED_BYTES: u32 = 100 * 1024 * 1024;

/// A busy machine takes far longer than another one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The broker's memory without connections, when its start is over: it stays the same for a second.
fn idle_bytes(broker: &BrokerProcess) -> u64 {
    let began = Instant::now();
    let mut before = broker.resident_bytes();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = broker.resident_bytes();
        if now.abs_diff(before) < MIB {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "{} MiB", now / MIB);
        before = now;
    }
}

/// Connections that each announce a request of 100 MB and send this much of it, as far as the
/// broker reads it with pauses of at most `patience`.
fn half_frames(
    broker: &BrokerProcess,
    connections: usize,
    bytes: usize,
    patience: Duration,
) -> Vec<TcpStream> {
    let chunk = vec![0; 64 * 1024];
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
        stream.set_write_timeout(Some(patience)).expect("a socket");
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

/// Whether a new client receives an ApiVersions response.
fn answers(broker: &BrokerProcess) -> bool {
    let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // ApiVersions v0, correlation ID 7, null client ID.
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
    stream.write_all(&request).expect("it is read");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).is_ok() && answer[4..] == [0, 0, 0, 7]
}

#[test]
fn incomplete_requests_count_and_release_their_memory() {
    let bound = 128 * MIB;
    let broker = BrokerBuilder::new()
        .property("queued.max.request.bytes", &bound.to_string())
        .start();
    let idle = idle_bytes(&broker);

    let open = half_frames(&broker, 400, 2 * MIB as usize, Duration::from_millis(20));
    let held = broker.resident_bytes();
    assert!(
        held < bound + idle + 64 * MIB,
        "{} MiB with a bound of {} MiB",
        held / MIB,
        bound / MIB
    );
    assert!(answers(&broker), "requests within the limit continue");
    drop(open);
    broker.shrinks_to(2 * idle);
}

/// The default limit is an eighth of the machine's memory. Requests below it are read, and their
/// memory is released as well.
#[test]
fn the_memory_of_a_burst_below_the_limit_is_released() {
    let broker = BrokerBuilder::new().start();
    let idle = idle_bytes(&broker);
    let open = half_frames(&broker, 100, 2 * MIB as usize, Duration::from_secs(2));
    let began = Instant::now();
    // A busy machine reads them a little later.
    while broker.resident_bytes() < idle + 100 * MIB {
        let held = broker.resident_bytes() / MIB;
        assert!(began.elapsed() < PATIENCE, "it has read them: {held} MiB");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(open);
    broker.shrinks_to(2 * idle);
}

/// The name of a client's software is remembered with its connection, and must not keep the request
/// that it came in.
#[test]
fn a_stored_name_does_not_hold_its_request() {
    const PADDING: usize = 8 << 20;
    let broker = BrokerBuilder::new().start();
    let idle = idle_bytes(&broker);
    // ApiVersions v3, correlation ID 7, null client ID; a name and a version, and bytes without meaning.
    let mut request = vec![0, 18, 0, 3, 0, 0, 0, 7, 0xff, 0xff, 0];
    request.extend(b"\x06probe\x021\0");
    request.resize(request.len() + PADDING, 0);
    let connect = || {
        let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let length = (request.len() as u32).to_be_bytes();
        stream.write_all(&length).expect("it is read");
        stream.write_all(&request).expect("it is read");
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).expect("it is answered");
        assert_eq!(
            answer[4..],
            [0, 0, 0, 7, 0, 0],
            "correlation ID and no error"
        );
        stream
    };
    let open: Vec<_> = (0..20).map(|_| connect()).collect();
    broker.shrinks_to(idle + 4 * PADDING as u64);
    drop(open);
}

/// A request that is an array of elements without anything in them: some bytes each, and thirty times that in memory.
struct Hollow {
    api: ApiKey,
    /// One without compact types, so that zeros are empty strings and arrays.
    version: u16,
    /// The bytes before the array.
    front: &'static [u8],
    /// The least bytes that an element has.
    element: usize,
}

const fn hollow(api: ApiKey, version: u16, front: &'static [u8], element: usize) -> Hollow {
    Hollow {
        api,
        version,
        front,
        element,
    }
}

/// One of each kind: names, topics with partitions, members with bytes, settings, groups; a Produce, and a Fetch.
const HOLLOW: [Hollow; 16] = [
    // No transactional id, acks of all, no time.
    hollow(ApiKey::Produce, 3, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], 6),
    // A consumer that waits for nothing.
    hollow(
        ApiKey::Fetch,
        4,
        &[
            0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        6,
    ),
    hollow(ApiKey::Metadata, 1, &[], 2),
    hollow(ApiKey::ListOffsets, 1, &[0xff; 4], 6),
    hollow(ApiKey::OffsetCommit, 2, &[0; 16], 6),
    hollow(ApiKey::OffsetFetch, 1, &[0; 2], 6),
    hollow(ApiKey::OffsetForLeaderEpoch, 2, &[], 6),
    hollow(ApiKey::JoinGroup, 2, &[0; 14], 6),
    hollow(ApiKey::SyncGroup, 0, &[0; 8], 6),
    hollow(ApiKey::DescribeGroups, 0, &[], 2),
    hollow(ApiKey::DeleteGroups, 0, &[], 2),
    hollow(ApiKey::DeleteTopics, 1, &[], 2),
    hollow(ApiKey::CreateTopics, 2, &[], 16),
    hollow(ApiKey::DescribeConfigs, 1, &[], 7),
    hollow(ApiKey::IncrementalAlterConfigs, 0, &[], 7),
    hollow(ApiKey::AddPartitionsToTxn, 0, &[0; 12], 6),
];

impl Hollow {
    fn frame(&self, bytes: usize) -> Vec<u8> {
        let count = (bytes - 64 - self.front.len()) / self.element;
        let head = [
            &self.api.code().to_be_bytes()[..],
            &self.version.to_be_bytes(),
            // The correlation id, and no client id.
            &[0, 0, 0, 7, 0xff, 0xff],
            self.front,
            &(count as u32).to_be_bytes(),
        ];
        let head = head.concat();
        let mut frame = (bytes as u32).to_be_bytes().to_vec();
        frame.extend(head);
        frame.resize(4 + bytes, 0);
        frame
    }
}

/// Sends it on its own connection. Returns whether a response arrives before the connection ends.
fn send_hollow(broker: &BrokerProcess, frame: &[u8]) -> bool {
    let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // The broker may close before it has read all.
    let _ = stream.write_all(frame);
    let mut first = [0; 8];
    match stream.read_exact(&mut first) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            panic!("neither answered nor closed")
        }
        Err(_) => false,
    }
}

/// The most that the process ever had in memory.
fn peak_bytes(broker: &BrokerProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid()));
    let status = status.expect("the broker runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|it| it.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

/// For each kind of request, the decoded size is bounded by the frame and by the available memory.
#[test]
fn a_request_of_empty_elements_takes_no_more_than_its_frame() {
    const FRAME: usize = 24 << 20;
    let broker = BrokerBuilder::new()
        .property("ottla.memory.max.bytes", &(256 * MIB).to_string())
        .start();
    let idle = idle_bytes(&broker);
    for hollow in &HOLLOW {
        let is_answered = send_hollow(&broker, &hollow.frame(FRAME));
        let peak = peak_bytes(&broker);
        assert!(
            peak < idle + 3 * FRAME as u64 + 32 * MIB,
            "{:?}: {} MiB, and idle {}",
            hollow.api,
            peak / MIB,
            idle / MIB
        );
        assert!(!is_answered, "{:?}", hollow.api);
        assert!(answers(&broker), "{:?}", hollow.api);
        assert!(
            send_hollow(&broker, &hollow.frame(1 << 10)),
            "{:?}: of a size at which all may be said, it is a request",
            hollow.api
        );
    }
    broker.shrinks_to(2 * idle);
}
