//! TLS of a listener whose records the kernel encrypts, while this node decrypts what it receives.
//!
//! rustls performs the handshake on buffers, and gives up its keys afterwards: the key for sending
//! goes to the kernel ([`SendKey`]), and [`KernelSession`] decrypts with the other. rustls continues
//! to derive the keys of TLS 1.3's key updates. What a client may send besides application data is
//! little: alerts, and with TLS 1.3 key updates.
//!
//! Nothing is lost between the two: bytes that arrive with the end of the handshake are not given to
//! rustls, but returned as the first ones to decrypt.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, HandshakeKind, PeerMisbehaved,
    ProtocolVersion, ServerConfig, SupportedCipherSuite,
};

const HEADER_BYTES: usize = 5;
/// The maximum size of an encrypted record without its header: that of TLS 1.2.
const MAX_PAYLOAD_BYTES: usize = (1 << 14) + 2048;
/// The maximum number of records without application data between two with it.
const MAX_OTHER_RECORDS: u32 = 32;
/// The plaintext in a record of the maximum size.
const MAX_PLAINTEXT_BYTES: u64 = 1 << 14;

const KEY_UPDATE: u8 = 24;
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// Types of records, for the kernel.
pub const ALERT_RECORD: u8 = 21;
pub const HANDSHAKE_RECORD: u8 = 22;
/// Tells the peer that nothing follows.
pub const CLOSE_NOTIFY_ALERT: [u8; 2] = [WARNING, CLOSE_NOTIFY];

/// What a handshake needs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeStep {
    /// [`KernelHandshake::take_to_send`] has to be sent.
    Send,
    /// More has to be appended to [`KernelHandshake::received`].
    Receive,
    /// [`KernelHandshake::finish`] follows.
    Finish,
}

/// The server's part of a handshake.
pub struct KernelHandshake {
    connection: UnbufferedServerConnection,
    /// Not yet consumed by rustls.
    received: Vec<u8>,
    /// How many bytes of `received` rustls has seen. It sees one more record only when it cannot
    /// continue without, and so none after the handshake.
    shown: usize,
    to_send: Vec<u8>,
}

impl KernelHandshake {
    pub fn new(config: Arc<ServerConfig>) -> Result<KernelHandshake, Error> {
        Ok(KernelHandshake {
            connection: UnbufferedServerConnection::new(config)?,
            received: Vec::new(),
            shown: 0,
            to_send: Vec::new(),
        })
    }

    /// Where bytes of the peer are appended.
    pub fn received(&mut self) -> &mut Vec<u8> {
        &mut self.received
    }

    /// After an error of [`KernelHandshake::advance`]: the alert that tells the peer.
    pub fn take_to_send(&mut self) -> Vec<u8> {
        mem::take(&mut self.to_send)
    }

    pub fn advance(&mut self) -> Result<HandshakeStep, Error> {
        loop {
            let shown = &mut self.received[..self.shown];
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(shown);
            let mut is_blocked = false;
            let step = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, &mut self.to_send).map(|()| None)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(Some(HandshakeStep::Send))
                }
                Ok(ConnectionState::BlockedHandshake) => {
                    is_blocked = true;
                    Ok(None)
                }
                Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(HandshakeStep::Finish)),
                // Early data is not enabled, and other data is not shown.
                Ok(_) => Err(Error::HandshakeNotComplete),
                Err(error) => Err(error),
            };
            self.received.drain(..discard);
            self.shown -= discard;
            if is_blocked {
                match self.next_record_end() {
                    Some(end) => self.shown = end,
                    None => return Ok(HandshakeStep::Receive),
                }
                continue;
            }
            match step {
                Ok(None) => {}
                Ok(Some(step)) => return Ok(step),
                Err(error) => {
                    self.encode_alert();
                    return Err(error);
                }
            }
        }
    }

    /// The end of the first record that rustls has not seen; `None` if it is incomplete.
    fn next_record_end(&self) -> Option<usize> {
        let rest = &self.received[self.shown..];
        let is_record = |first| (20..=24).contains(&first);
        match rest {
            [] => None,
            // rustls reports the error at once.
            [first, ..] if !is_record(*first) => Some(self.received.len()),
            _ => {
                let end = self.shown + HEADER_BYTES + payload_len(rest)?;
                (end <= self.received.len()).then_some(end)
            }
        }
    }

    fn encode_alert(&mut self) {
        let shown = &mut self.received[..self.shown];
        let status = self.connection.process_tls_records(shown);
        if let Ok(ConnectionState::EncodeTlsData(data)) = status.state {
            // Without it, the peer only sees the end of the connection.
            let _ = encode(data, &mut self.to_send);
        }
    }

    /// The certificate chain that the client presented, its own certificate first.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.connection.peer_certificates().unwrap_or_default()
    }

    /// Whether it resumes an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the key for the kernel, and the bytes of the peer that follow the handshake.
    pub fn finish(self) -> Result<(KernelSession, SendKey, Vec<u8>), Error> {
        if self.shown != 0 {
            return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
        }
        let (secrets, connection) = self.connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite();
        let (sequence, key) = secrets.rx;
        let decrypter = decrypter(suite, key)?;
        let (sent, key) = secrets.tx;
        let session = KernelSession {
            connection,
            suite,
            decrypter,
            sequence,
            other_records: 0,
            sent_records: sent,
            is_update_requested: false,
        };
        Ok((session, SendKey::new(suite, sent, &key)?, self.received))
    }
}

fn encode(
    mut data: EncodeTlsData<'_, ServerConnectionData>,
    to_send: &mut Vec<u8>,
) -> Result<(), Error> {
    let begin = to_send.len();
    let mut room = 0;
    loop {
        to_send.resize(begin + room, 0);
        match data.encode(&mut to_send[begin..]) {
            Ok(written) => {
                to_send.truncate(begin + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(needed)) => room = needed.required_size,
            Err(error) => return Err(Error::General(error.to_string())),
        }
    }
}

/// The size of the record at the start of `bytes` without its header; `None` if the header is
/// incomplete.
fn payload_len(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(3..HEADER_BYTES)?;
    Some(usize::from(u16::from_be_bytes([length[0], length[1]])))
}

fn unsupported() -> Error {
    Error::General("the kernel has no such cipher".to_owned())
}

fn decrypter(
    suite: SupportedCipherSuite,
    key: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, Error> {
    let is_chacha = matches!(key, ConnectionTrafficSecrets::Chacha20Poly1305 { .. });
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = key
    else {
        return Err(unsupported());
    };
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) if is_chacha => {
            suite.aead_alg.decrypter(key, iv.as_ref())
        }
        // The other part of the nonce is in each record.
        SupportedCipherSuite::Tls12(suite) => suite.aead_alg.decrypter(key, &iv.as_ref()[..4]),
    })
}

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// Application data, at these places of the record.
    Data(Range<usize>),
    /// Nothing for the application.
    Other,
    /// The peer sends nothing more.
    Closed,
}

/// A connection after the handshake: decrypts, and derives new keys.
pub struct KernelSession {
    connection: KernelConnection<ServerConnectionData>,
    suite: SupportedCipherSuite,
    decrypter: Box<dyn MessageDecrypter>,
    /// Of the next record that is received.
    sequence: u64,
    /// How many records without application data came since the last with it.
    other_records: u32,
    /// An upper bound of the records that were sent with the current key.
    sent_records: u64,
    /// The peer has asked for a new key of this node.
    is_update_requested: bool,
}

impl std::fmt::Debug for KernelSession {
    /// Omits keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelSession")
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

impl KernelSession {
    /// The size of the record at the start of `bytes`, with its header; `None` if it is incomplete.
    pub fn record_len(bytes: &[u8]) -> Result<Option<usize>, Error> {
        let Some(length) = payload_len(bytes) else {
            return Ok(None);
        };
        if length > MAX_PAYLOAD_BYTES {
            return Err(Error::PeerSentOversizedRecord);
        }
        let length = HEADER_BYTES + length;
        Ok((length <= bytes.len()).then_some(length))
    }

    /// Decrypts a complete record in its place.
    pub fn decrypt(&mut self, record: &mut [u8]) -> Result<Received, Error> {
        let (header, payload) = record.split_at_mut(HEADER_BYTES);
        let record_type = ContentType::from(header[0]);
        let version = ProtocolVersion::from(u16::from_be_bytes([header[1], header[2]]));
        let is_tls13 = self.connection.protocol_version() == ProtocolVersion::TLSv1_3;
        if is_tls13 && record_type != ContentType::ApplicationData {
            return Err(unexpected(record_type));
        }
        let begin = payload.as_ptr().addr();
        let message = InboundOpaqueMessage::new(record_type, version, payload);
        let message = self.decrypter.decrypt(message, self.sequence)?;
        self.sequence += 1;
        let contents = message.payload;
        if message.typ == ContentType::ApplicationData && !contents.is_empty() {
            self.other_records = 0;
            // TLS 1.2 has a part of the nonce before it.
            let begin = HEADER_BYTES + (contents.as_ptr().addr() - begin);
            return Ok(Received::Data(begin..begin + contents.len()));
        }
        self.other_records += 1;
        if self.other_records > MAX_OTHER_RECORDS {
            return Err(PeerMisbehaved::TooManyEmptyFragments.into());
        }
        match (message.typ, contents) {
            (ContentType::ApplicationData, _) => Ok(Received::Other),
            (ContentType::Alert, [_, CLOSE_NOTIFY]) => Ok(Received::Closed),
            // TLS 1.3 has only one warning left.
            (ContentType::Alert, [WARNING, description])
                if !is_tls13 || *description == USER_CANCELED =>
            {
                Ok(Received::Other)
            }
            (ContentType::Alert, [_, description]) => {
                Err(Error::AlertReceived(AlertDescription::from(*description)))
            }
            (ContentType::Handshake, [KEY_UPDATE, 0, 0, 1, request @ (0 | 1)]) if is_tls13 => {
                self.is_update_requested |= *request == 1;
                let (sequence, key) = self.connection.update_rx_secret()?;
                self.sequence = sequence;
                self.decrypter = decrypter(self.suite, key)?;
                Ok(Received::Other)
            }
            (other, _) => Err(unexpected(other)),
        }
    }

    /// Counts the records of one call. The kernel fills records, except for the last one.
    pub fn on_sent(&mut self, bytes: u64) {
        self.sent_records += bytes.div_ceil(MAX_PLAINTEXT_BYTES);
    }

    /// Whether the key for sending must be replaced, because the peer has asked for it, or because
    /// it has encrypted nearly as many records as it may. The rest is for answers to requests that
    /// have arrived.
    pub fn needs_new_key(&self) -> bool {
        let most = self.most_records();
        self.is_update_requested || self.sent_records >= most - most / 16
    }

    fn most_records(&self) -> u64 {
        match self.suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        }
    }

    /// Whether the protocol can replace a key.
    pub fn can_update_key(&self) -> bool {
        self.connection.protocol_version() == ProtocolVersion::TLSv1_3
    }

    /// The next key for sending, which counts after [`KEY_UPDATE_MESSAGE`] has been sent with the
    /// previous one.
    pub fn update_key(&mut self) -> Result<SendKey, Error> {
        let (sequence, key) = self.connection.update_tx_secret()?;
        self.is_update_requested = false;
        self.sent_records = 0;
        SendKey::new(self.suite, sequence, &key)
    }

    /// The alert that tells the peer about an error.
    pub fn alert(error: &Error) -> Option<[u8; 2]> {
        let description = match error {
            Error::DecryptError => AlertDescription::BadRecordMac,
            Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
            // It has ended the connection itself.
            Error::AlertReceived(_) => return None,
            _ => AlertDescription::UnexpectedMessage,
        };
        Some([FATAL, description.into()])
    }
}

/// Announces a new key of this node.
pub const KEY_UPDATE_MESSAGE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

fn unexpected(got_type: ContentType) -> Error {
    Error::InappropriateMessage {
        expect_types: vec![ContentType::ApplicationData],
        got_type,
    }
}

/// A key for sending, as the kernel's `tls12_crypto_info_*`.
pub struct SendKey(Vec<u8>);

/// The kernel's numbers.
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

impl SendKey {
    fn new(
        suite: SupportedCipherSuite,
        sequence: u64,
        key: &ConnectionTrafficSecrets,
    ) -> Result<SendKey, Error> {
        let version = match suite {
            SupportedCipherSuite::Tls12(_) => TLS12,
            SupportedCipherSuite::Tls13(_) => TLS13,
        };
        let (cipher, key, iv) = match key {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (AES_GCM_128, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (AES_GCM_256, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (CHACHA20_POLY1305, key, iv),
            _ => return Err(unsupported()),
        };
        Ok(SendKey::of(
            version,
            cipher,
            key.as_ref(),
            iv.as_ref(),
            sequence,
        ))
    }

    /// `nonce` has 12 bytes.
    fn of(version: u16, cipher: u16, key: &[u8], nonce: &[u8], sequence: u64) -> SendKey {
        let mut info = Vec::with_capacity(64);
        info.extend(version.to_ne_bytes());
        info.extend(cipher.to_ne_bytes());
        if cipher == CHACHA20_POLY1305 {
            info.extend(nonce);
            info.extend(key);
        } else {
            let (salt, rest) = nonce.split_at(4);
            let at = info.len();
            info.extend(rest);
            if version == TLS12 {
                // The nonces of rustls are this number, xored with the sequence number. The kernel
                // counts up from it, and would use those of the handshake again: both begin with the
                // number itself. Without its highest bit, they are 2^63 apart.
                info[at] ^= 0x80;
            }
            info.extend(key);
            info.extend(salt);
        }
        info.extend(sequence.to_be_bytes());
        SendKey(info)
    }

    /// A meaningless key for each version and cipher, to find out whether the kernel has them.
    pub fn all_for_trying() -> Vec<(&'static str, SendKey)> {
        let ciphers = [
            ("TLS 1.2 with AES-128-GCM", TLS12, AES_GCM_128, 16),
            ("TLS 1.2 with AES-256-GCM", TLS12, AES_GCM_256, 32),
            (
                "TLS 1.2 with ChaCha20-Poly1305",
                TLS12,
                CHACHA20_POLY1305,
                32,
            ),
            ("TLS 1.3 with AES-128-GCM", TLS13, AES_GCM_128, 16),
            ("TLS 1.3 with AES-256-GCM", TLS13, AES_GCM_256, 32),
            (
                "TLS 1.3 with ChaCha20-Poly1305",
                TLS13,
                CHACHA20_POLY1305,
                32,
            ),
        ];
        let keys = ciphers.map(|(name, version, cipher, length)| {
            let key = vec![1; length];
            (name, SendKey::of(version, cipher, &key, &[2; 12], 0))
        });
        keys.into()
    }

    /// For the kernel.
    pub fn crypto_info(&self) -> &[u8] {
        &self.0
    }
}
