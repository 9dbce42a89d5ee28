//! Connections for which the kernel encrypts, in memory: with a client of rustls, and with the
//! kernel's way of encrypting in its place.

#[path = "support/contexts.rs"]
mod contexts;

use std::io::{Read, Write};

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use contexts::context;
use ottla_testkit::certificates::{Authority, Wanted};
use ottla_tls::Purpose;
use ottla_tls::kernel::{
    ALERT_RECORD, CLOSE_NOTIFY_ALERT, HANDSHAKE_RECORD, HandshakeStep, KEY_UPDATE_MESSAGE,
    KernelHandshake, KernelSession, Received, SendKey,
};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

const APPLICATION_DATA: u8 = 23;
const CHANGE_CIPHER_SPEC: u8 = 20;
const EARLY: &[u8] = b"the first request";

/// Encrypts as Linux does in `net/tls/tls_sw.c`.
struct Kernel {
    is_tls13: bool,
    has_explicit_nonce: bool,
    key: LessSafeKey,
    nonce: [u8; 12],
    sequence: u64,
}

impl Kernel {
    fn new(key: &SendKey) -> Kernel {
        let info = key.crypto_info();
        let number = |at: usize| u16::from_ne_bytes([info[at], info[at + 1]]);
        let rest = &info[4..];
        let (algorithm, key_bytes) = match number(2) {
            51 => (&AES_128_GCM, 16),
            52 => (&AES_256_GCM, 32),
            54 => (&CHACHA20_POLY1305, 32),
            other => panic!("the kernel has no cipher {other}"),
        };
        let is_gcm = number(2) != 54;
        let nonce_bytes = if is_gcm { 8 } else { 12 };
        let (nonce_of, rest) = rest.split_at(nonce_bytes);
        let (key, rest) = rest.split_at(key_bytes);
        let (salt, sequence) = rest.split_at(12 - nonce_bytes);
        let is_tls13 = number(0) == 0x0304;
        Kernel {
            is_tls13,
            has_explicit_nonce: is_gcm && !is_tls13,
            key: LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap()),
            nonce: [salt, nonce_of].concat().try_into().unwrap(),
            sequence: u64::from_be_bytes(sequence.try_into().unwrap()),
        }
    }

    fn encrypt(&mut self, record_type: u8, payload: &[u8]) -> Vec<u8> {
        let mut contents = payload.to_vec();
        let mut nonce = self.nonce;
        let mut explicit = Vec::new();
        if self.has_explicit_nonce {
            explicit = nonce[4..].to_vec();
            let next = u64::from_be_bytes(nonce[4..].try_into().unwrap()).wrapping_add(1);
            self.nonce[4..].copy_from_slice(&next.to_be_bytes());
        } else {
            for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
                *byte ^= of_sequence;
            }
        }
        let outer_type = if self.is_tls13 {
            contents.push(record_type);
            APPLICATION_DATA
        } else {
            record_type
        };
        let length = (explicit.len() + contents.len() + 16) as u16;
        let mut record = vec![outer_type, 3, 3];
        record.extend(length.to_be_bytes());
        let mut additional = record.clone();
        if !self.is_tls13 {
            additional = self.sequence.to_be_bytes().to_vec();
            additional.extend([record_type, 3, 3]);
            additional.extend((payload.len() as u16).to_be_bytes());
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(additional), &mut contents)
            .unwrap();
        self.sequence += 1;
        [record, explicit, contents].concat()
    }
}

struct Connected {
    client: ClientConnection,
    session: KernelSession,
    kernel: Kernel,
    /// What the client has sent and the session has not decrypted.
    received: Vec<u8>,
    /// The records of the handshake that the server has sent.
    handshake: Vec<u8>,
    is_closed: bool,
}

fn take_from(client: &mut ClientConnection, bytes: &mut Vec<u8>) {
    while client.write_tls(bytes).unwrap() > 0 {}
}

fn give_to(client: &mut ClientConnection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets().unwrap();
    }
}

impl Connected {
    /// The client has written [`EARLY`] before the handshake, and so sends it as soon as it can.
    fn new(protocol: &str, suite: &str) -> Connected {
        let authority = Authority::new("authority");
        let own = authority.issue(Wanted::default());
        let only = [
            ("ssl.enabled.protocols", protocol),
            ("ssl.cipher.suites", suite),
        ];
        let server = context(Purpose::Listener, Some(&own), &authority.pem(), &only);
        let client = context(Purpose::Client, None, &authority.pem(), &[]);
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(client.client(), name).unwrap();
        client.writer().write_all(EARLY).unwrap();
        let mut server = KernelHandshake::new(server.server().unwrap()).unwrap();
        let mut handshake = Vec::new();
        loop {
            match server.advance().unwrap() {
                HandshakeStep::Send => {
                    let sent = server.take_to_send();
                    give_to(&mut client, &sent);
                    handshake.extend(sent);
                }
                HandshakeStep::Receive => {
                    let before = server.received().len();
                    take_from(&mut client, server.received());
                    assert!(server.received().len() > before, "both wait");
                }
                HandshakeStep::Finish => break,
            }
        }
        let (session, key, received) = server.finish().unwrap();
        Connected {
            client,
            session,
            kernel: Kernel::new(&key),
            received,
            handshake,
            is_closed: false,
        }
    }

    /// Decrypts what the client has sent.
    fn receive(&mut self) -> Vec<u8> {
        take_from(&mut self.client, &mut self.received);
        let mut data = Vec::new();
        while let Some(length) = KernelSession::record_len(&self.received).unwrap() {
            let mut record: Vec<u8> = self.received.drain(..length).collect();
            match self.session.decrypt(&mut record).unwrap() {
                Received::Data(at) => data.extend(&record[at]),
                Received::Other => {}
                Received::Closed => self.is_closed = true,
            }
        }
        assert!(self.received.is_empty());
        data
    }

    fn send(&mut self, record_type: u8, payload: &[u8]) {
        let record = self.kernel.encrypt(record_type, payload);
        give_to(&mut self.client, &record);
    }

    /// Data in both directions.
    fn exchange(&mut self) {
        for size in [1, 100, 16 * 1024] {
            let data = vec![b'x'; size];
            self.send(APPLICATION_DATA, &data);
            let mut read = vec![0; size];
            self.client.reader().read_exact(&mut read).unwrap();
            assert_eq!(read, data);
            self.client.writer().write_all(&data).unwrap();
            assert_eq!(self.receive(), data);
        }
    }
}

const OF_TLS12: [&str; 3] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];
const OF_TLS13: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

#[test]
fn data_from_before_the_end_of_the_handshake_and_after_it_arrives() {
    let all = OF_TLS12.map(|suite| ("TLSv1.2", suite));
    for (protocol, suite) in all.into_iter().chain(OF_TLS13.map(|it| ("TLSv1.3", it))) {
        let mut connected = Connected::new(protocol, suite);
        if protocol == "TLSv1.3" {
            assert!(!connected.received.is_empty(), "it came with the handshake");
        }
        assert_eq!(connected.receive(), EARLY, "{suite}");
        connected.exchange();

        connected.send(ALERT_RECORD, &CLOSE_NOTIFY_ALERT);
        let state = connected.client.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        connected.client.send_close_notify();
        assert_eq!(connected.receive(), b"");
        assert!(connected.is_closed);
    }
}

#[test]
fn both_sides_replace_their_keys_with_tls_1_3() {
    for suite in OF_TLS13 {
        let mut connected = Connected::new("TLSv1.3", suite);
        assert_eq!(connected.receive(), EARLY);
        assert!(connected.session.can_update_key() && !connected.session.needs_new_key());
        for _ in 0..2 {
            connected.client.refresh_traffic_keys().unwrap();
            connected
                .client
                .writer()
                .write_all(b"with a new key")
                .unwrap();
            assert_eq!(connected.receive(), b"with a new key");
            // rustls asks for an answer.
            assert!(connected.session.needs_new_key());
            connected.send(HANDSHAKE_RECORD, &KEY_UPDATE_MESSAGE);
            let key = connected.session.update_key().unwrap();
            connected.kernel = Kernel::new(&key);
            assert!(!connected.session.needs_new_key());
            connected.exchange();
        }
    }
}

#[test]
fn a_key_is_replaced_before_its_limit() {
    let mut connected = Connected::new("TLSv1.3", OF_TLS13[0]);
    connected.session.on_sent((14 << 20) * 16 * 1024);
    assert!(!connected.session.needs_new_key());
    connected.session.on_sent((1 << 20) * 16 * 1024);
    assert!(connected.session.needs_new_key());
    connected.session.update_key().unwrap();
    assert!(!connected.session.needs_new_key());

    let connected = Connected::new("TLSv1.2", OF_TLS12[0]);
    assert!(!connected.session.can_update_key());
}

#[test]
fn the_kernel_uses_no_nonce_of_the_handshake_again() {
    for suite in &OF_TLS12[..2] {
        let mut connected = Connected::new("TLSv1.2", suite);
        // Encrypted records follow ChangeCipherSpec, and begin with their nonces.
        let mut rest = connected.handshake.as_slice();
        let mut is_encrypted = false;
        let mut nonces = Vec::new();
        while let Some(length) = KernelSession::record_len(rest).unwrap() {
            if is_encrypted {
                nonces.push(rest[5..13].to_vec());
            }
            is_encrypted |= rest[0] == CHANGE_CIPHER_SPEC;
            rest = &rest[length..];
        }
        assert!(!nonces.is_empty());
        for _ in 0..3 {
            let record = connected.kernel.encrypt(APPLICATION_DATA, b"x");
            assert!(!nonces.contains(&record[5..13].to_vec()), "{suite}");
        }
    }
}

#[test]
fn a_changed_record_is_an_error() {
    let mut connected = Connected::new("TLSv1.3", OF_TLS13[0]);
    assert_eq!(connected.receive(), EARLY);
    connected.client.writer().write_all(b"request").unwrap();
    let mut record = Vec::new();
    take_from(&mut connected.client, &mut record);
    *record.last_mut().unwrap() ^= 1;
    let error = connected.session.decrypt(&mut record).unwrap_err();
    assert_eq!(KernelSession::alert(&error), Some([2, 20]));
}

#[test]
fn plaintext_is_refused_at_once_with_an_alert() {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let server = context(Purpose::Listener, Some(&own), &authority.pem(), &[]);
    let mut server = KernelHandshake::new(server.server().unwrap()).unwrap();
    assert_eq!(server.advance().unwrap(), HandshakeStep::Receive);
    server.received().extend([0, 0, 0, 20, 0, 18, 0, 3]);
    server.advance().unwrap_err();
    assert_eq!(server.take_to_send()[0], ALERT_RECORD);
}
