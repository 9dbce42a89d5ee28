//! What a peer sends to a TLS listener whose records the kernel encrypts: the handshake ends in an error, or waits for more.
//! Nobody completes it without the keys that it negotiates.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ottla_tls::kernel::{HandshakeStep, KernelHandshake, KernelSession};
use ottla_tls::{Given, Purpose, TlsContext, TlsSettings};

static LISTENER: LazyLock<TlsContext> = LazyLock::new(|| {
    let settings = TlsSettings::read("the listener", Purpose::Listener, |key| {
        let value = match key {
            "ssl.keystore.type" | "ssl.truststore.type" => "PEM",
            "ssl.keystore.key" => include_str!("../src/listener.key"),
            "ssl.keystore.certificate.chain" | "ssl.truststore.certificates" => include_str!("../src/listener.crt"),
            "ssl.client.auth" => "required",
            _ => return None,
        };
        Some(Given { key: key.to_owned(), value: value.to_owned() })
    });
    TlsContext::load(settings).expect("good settings")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(length)) = KernelSession::record_len(bytes) {
        assert!(length <= bytes.len());
    }
    // The length of the pieces in which it arrives, and the rest.
    let Some((length, bytes)) = bytes.split_first() else { return };
    let mut pieces = bytes.chunks(usize::from(*length).max(1));
    let config = LISTENER.server().expect("a listener has one");
    let mut handshake = KernelHandshake::new(config).expect("a good configuration");
    loop {
        match handshake.advance() {
            Ok(HandshakeStep::Send) => drop(handshake.take_to_send()),
            Ok(HandshakeStep::Receive) => match pieces.next() {
                Some(piece) => handshake.received().extend_from_slice(piece),
                None => return,
            },
            Ok(HandshakeStep::Finish) => panic!("it is complete"),
            Err(_) => return,
        }
    }
});
