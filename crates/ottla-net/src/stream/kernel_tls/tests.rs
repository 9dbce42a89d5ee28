//! Connections for which the kernel encrypts. Many kernels cannot, so a plain test run reports these
//! tests as ignored; `cargo xtask kernel-tls` runs them in a virtual machine. What needs no kernel is
//! tested in `ottla-tls`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use ottla_config::SecurityProtocol;
use ottla_protocol::{Chunk, Encoded, FileRegion};
use ottla_testkit::certificates::{Authority, Issued, Wanted};
use ottla_tls::{Given, Purpose, TlsContext, TlsSettings};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio::io::AsyncReadExt;

use super::*;
use crate::connections::ListenerInfo;
use crate::send::SendQueue;
use crate::stream::Stream;
use crate::unsent_answers::{Unsent, UnsentAnswers};

type Client = StreamOwned<ClientConnection, std::net::TcpStream>;

const SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];
const FILE_BYTES: usize = 3 * 1024 * 1024;

fn context(
    purpose: Purpose,
    own: Option<&Issued>,
    authority: &Authority,
    suite: &str,
) -> TlsContext {
    let trusted = authority.pem();
    let settings = TlsSettings::read("the test", purpose, |key| {
        let value = match (key, own) {
            ("ssl.truststore.type", _) | ("ssl.keystore.type", Some(_)) => "PEM",
            ("ssl.truststore.certificates", _) => &trusted,
            ("ssl.keystore.key", Some(own)) => &own.key,
            ("ssl.keystore.certificate.chain", Some(own)) => &own.certificate,
            ("ssl.cipher.suites", _) => suite,
            ("ssl.enabled.protocols", _) if suite.starts_with("TLS_ECDHE") => "TLSv1.2",
            ("ssl.enabled.protocols", _) => "TLSv1.3",
            _ => return None,
        };
        Some(Given {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    });
    TlsContext::load(settings).unwrap()
}

/// Both ends of a connection. The client sends `request` with the end of its handshake, or soon
/// after.
async fn connect(
    suite: &str,
    request: &'static [u8],
    kernel: &Arc<KernelTls>,
) -> (Box<KernelTlsStream>, Client, Arc<Connection>) {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let server = context(Purpose::Listener, Some(&own), &authority, suite);
    let client = context(Purpose::Client, None, &authority, suite);
    let listening = ottla_sync::net::TcpListener::bind("127.0.0.1:0").await;
    let listening = listening.unwrap();
    let address = listening.local_addr().unwrap();
    let connecting = ottla_sync::thread::spawn(move || {
        let socket = std::net::TcpStream::connect(address).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(client.client(), name).unwrap();
        let mut client = StreamOwned::new(session, socket);
        client.write_all(request).unwrap();
        client.flush().unwrap();
        client
    });
    let (socket, peer) = listening.accept().await.unwrap();
    let listener = Arc::new(ListenerInfo {
        name: "SSL".to_owned(),
        protocol: SecurityProtocol::Ssl,
        local_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        is_controller: false,
    });
    let owner = Arc::new(Connection::new(1, listener, peer, 0));
    let config = server.server().unwrap();
    let accepting = KernelTlsStream::accept(socket, config, Arc::clone(kernel), Arc::clone(&owner));
    let accepted = Box::new(accepting.await.unwrap());
    let joining = ottla_sync::task::spawn_blocking(move || connecting.join().unwrap());
    (accepted, joining.await.unwrap(), owner)
}

/// Three buffers and two regions of a file, and all their bytes.
fn answer() -> (Encoded, Vec<u8>) {
    let mut contents: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 7) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&contents).unwrap();
    let file = Arc::new(file);
    let region = |position: u64, len: u64| {
        Chunk::File(FileRegion {
            file: Arc::clone(&file) as _,
            position,
            len,
        })
    };
    let (first, rest) = (1000, FILE_BYTES as u64 - 1000);
    let chunks = vec![
        Chunk::Bytes(Bytes::from_static(b"head")),
        region(0, first),
        Chunk::Bytes(Bytes::from_static(b"between")),
        region(first, rest),
        Chunk::Bytes(Bytes::from_static(b"tail")),
    ];
    let tail = contents.split_off(first as usize);
    let all = [b"head".as_slice(), &contents, b"between", &tail, b"tail"].concat();
    (Encoded { chunks }, all)
}

/// Sends an answer, while the client reads and compares it.
async fn send_answer(stream: &mut Stream, mut client: Client) -> Client {
    let (encoded, expected) = answer();
    let reading = ottla_sync::thread::spawn(move || {
        let mut read = vec![0; expected.len()];
        client.read_exact(&mut read).unwrap();
        assert!(read == expected, "the client reads something else");
        client
    });
    let mut queue = SendQueue::default();
    queue.push(encoded);
    let unsent = Unsent::of(&Arc::new(UnsentAnswers::new(0)));
    queue.send_all(stream, &unsent, || {}).await.unwrap();
    let joining = ottla_sync::task::spawn_blocking(move || reading.join().unwrap());
    joining.await.unwrap()
}

async fn read(stream: &mut Stream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
#[ignore = "needs a kernel with TLS: cargo xtask kernel-tls"]
async fn requests_and_file_regions_arrive_and_both_sides_close() {
    let kernel = Arc::new(KernelTls::probe().unwrap());
    for suite in SUITES {
        let (accepted, client, _) = connect(suite, b"the first request", &kernel).await;
        assert_eq!(kernel.connections(), 1);
        let mut stream = Stream::KernelTls(accepted);
        assert_eq!(read(&mut stream, 17).await, b"the first request", "{suite}");
        let mut client = client;
        for _ in 0..3 {
            client = send_answer(&mut stream, client).await;
            client.write_all(b"next").unwrap();
            assert_eq!(read(&mut stream, 4).await, b"next");
        }
        client.conn.send_close_notify();
        client.flush().unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
        stream.close().await;
        // rustls reports an end without close_notify as an error.
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        drop(stream);
        assert_eq!(kernel.connections(), 0);
    }
}

#[tokio::test]
#[ignore = "needs a kernel with TLS: cargo xtask kernel-tls"]
async fn a_new_key_is_used_or_the_connection_ends_after_its_answers() {
    let kernel = Arc::new(KernelTls::probe().unwrap());
    let (accepted, mut client, owner) = connect(SUITES[3], b"request", &kernel).await;
    let mut stream = Stream::KernelTls(accepted);
    assert_eq!(read(&mut stream, 7).await, b"request");
    for _ in 0..2 {
        client.conn.refresh_traffic_keys().unwrap();
        client.write_all(b"with a new key").unwrap();
        assert_eq!(read(&mut stream, 14).await, b"with a new key");
        client = send_answer(&mut stream, client).await;
        assert_eq!(owner.is_draining(), !kernel.can_replace_keys());
    }
}
