//! Which certificates clients and listeners trust, in handshakes in memory: Java's rules in
//! addition to webpki's.

// Tests create files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "support/contexts.rs"]
mod contexts;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use contexts::context;
use ottla_testkit::certificates::{Authority, Issued, Wanted, self_signed};
use ottla_testkit::said::Said;
use ottla_tls::{Purpose, TlsContext};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection, SignatureScheme};

/// Performs a handshake of a client that has connected to `name`. Returns the principal that the
/// listener derives.
fn handshake(
    server: &TlsContext,
    client: &TlsContext,
    name: &str,
) -> Result<Option<String>, String> {
    let (_, listening) = connect(server, client.client(), name)?;
    let shown = listening.peer_certificates().unwrap_or_default();
    server.principal(shown).map_err(|error| error.0)
}

/// The two ends of a connection after the handshake.
fn connect(
    server: &TlsContext,
    client: Arc<ClientConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), String> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(client, name).expect("a client");
    let config = server.server().expect("a listener");
    let mut listening = ServerConnection::new(Arc::clone(&config)).expect("a server");
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.write_tls(&mut bytes).expect("bytes") > 0 {}
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            listening.read_tls(&mut rest).expect("read");
        }
        listening
            .process_new_packets()
            .map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        while listening.write_tls(&mut bytes).expect("bytes") > 0 {}
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("read");
        }
        client
            .process_new_packets()
            .map_err(|error| error.to_string())?;
    }
    assert!(!client.is_handshaking() && !listening.is_handshaking());
    Ok((client, listening))
}

#[test]
fn each_further_connection_resumes_the_session_with_its_principal() {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let alice = authority.issue(Wanted {
        common_name: "alice",
        ..Wanted::default()
    });
    let required = [("ssl.client.auth", "required")];
    let trusted = authority.pem();
    let server = context(Purpose::Listener, Some(&own), &trusted, &required);
    let client = context(Purpose::Client, Some(&alice), &trusted, &[]);
    let (full, resumed) = (HandshakeKind::Full, HandshakeKind::Resumed);
    for expected in [full, resumed, resumed] {
        let (client, listening) = connect(&server, client.client(), "localhost").unwrap();
        assert_eq!(client.handshake_kind(), Some(expected));
        let shown = listening.peer_certificates().unwrap_or_default();
        let principal = server.principal(shown).unwrap();
        assert_eq!(principal.as_deref(), Some("CN=alice,O=Ottla"));
    }
}

#[test]
fn the_certificate_of_a_resumed_session_counts_until_it_expires_and_none_always() {
    const LASTS: Duration = Duration::from_secs(1_000);
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let alice = authority.issue(Wanted {
        common_name: "alice",
        lasts: Some(LASTS),
        ..Wanted::default()
    });
    let requested = [("ssl.client.auth", "requested")];
    let trusted = authority.pem();
    let server = context(Purpose::Listener, Some(&own), &trusted, &requested);
    for certificate in [Some(&alice), None] {
        let client = context(Purpose::Client, certificate, &trusted, &[]);
        connect(&server, client.client(), "localhost").unwrap();
        let (_, listening) = connect(&server, client.client(), "localhost").unwrap();
        assert_eq!(listening.handshake_kind(), Some(HandshakeKind::Resumed));
        let shown = listening.peer_certificates().unwrap_or_default();
        assert_eq!(shown.is_empty(), certificate.is_none());
        let now = SystemTime::now();
        assert_eq!(server.verify_again(shown, now), Ok(()));
        let is_refused = server.verify_again(shown, now + 2 * LASTS).is_err();
        assert_eq!(is_refused, certificate.is_some());
    }
}

/// The result for a client that trusts `trusted` when the server presents `own`.
fn asked(own: &Issued, trusted: &str, name: &str, more: &[(&str, &str)]) -> Result<(), String> {
    let server = context(Purpose::Listener, Some(own), trusted, &[]);
    let client = context(Purpose::Client, None, trusted, more);
    handshake(&server, &client, name).map(drop)
}

#[test]
fn a_server_is_known_by_its_names_and_by_its_cn_where_it_has_none() {
    let authority = Authority::new("authority");
    let issue = |common_name, names| {
        authority.issue(Wanted {
            common_name,
            names,
            ..Wanted::default()
        })
    };
    let trusted = authority.pem();
    let named = issue("cn.example.org", &["san.example.org", "10.0.0.1"]);
    assert_eq!(asked(&named, &trusted, "san.example.org", &[]), Ok(()));
    assert_eq!(asked(&named, &trusted, "10.0.0.1", &[]), Ok(()));
    assert!(asked(&named, &trusted, "cn.example.org", &[]).is_err());
    let any = [("ssl.endpoint.identification.algorithm", "")];
    assert_eq!(asked(&named, &trusted, "cn.example.org", &any), Ok(()));
    for (common_name, name, is_known) in [
        ("cn.example.org", "cn.example.org", true),
        ("cn.example.org", "CN.Example.ORG", true),
        ("cn.example.org", "other.example.org", false),
        ("*.example.org", "cn.example.org", true),
        ("*.example.org", "a.cn.example.org", false),
        ("*.org", "example.org", false),
        ("10.0.0.1", "10.0.0.1", false),
    ] {
        let outcome = asked(&issue(common_name, &[]), &trusted, name, &[]);
        assert_eq!(
            outcome.is_ok(),
            is_known,
            "{common_name} for {name}: {outcome:?}"
        );
    }
}

#[test]
fn certificates_of_cas_and_of_the_trust_store_are_accepted() {
    let authority = Authority::new("authority");
    let wanted = Wanted {
        is_authority: true,
        ..Wanted::default()
    };
    let trusted = authority.pem();
    assert_eq!(
        asked(&authority.issue(wanted), &trusted, "localhost", &[]),
        Ok(())
    );
    assert!(asked(&authority.issue(wanted), &trusted, "elsewhere", &[]).is_err());
    let other = Authority::new("authority");
    let refused = asked(&other.issue(wanted), &trusted, "localhost", &[]);
    assert!(refused.is_err(), "the same name is not the same key");
    let expired = authority.issue(Wanted {
        is_expired: true,
        ..wanted
    });
    assert!(asked(&expired, &trusted, "localhost", &[]).is_err());
    for is_authority in [true, false] {
        let itself = self_signed(Wanted {
            is_authority,
            ..Wanted::default()
        });
        assert_eq!(
            asked(&itself, &itself.certificate, "localhost", &[]),
            Ok(())
        );
    }
    let unknown = self_signed(Wanted::default());
    assert!(asked(&unknown, &trusted, "localhost", &[]).is_err());
}

/// A peer chooses the certificates that it sends, and each of them may be of the issuer's name.
#[test]
fn the_signatures_that_are_verified_for_one_certificate_are_limited() {
    let root = Authority::new("root");
    let middle = root.under("middle");
    let leaf = middle.issue(Wanted {
        is_authority: true,
        ..Wanted::default()
    });
    for (decoys, is_accepted) in [(0, true), (10, true), (30, false)] {
        let mut own = leaf.clone();
        for _ in 0..decoys {
            own.certificate += &Authority::new("middle").pem();
        }
        own.certificate += &middle.pem();
        let outcome = asked(&own, &root.pem(), "localhost", &[]);
        assert_eq!(outcome.is_ok(), is_accepted, "{decoys}: {outcome:?}");
    }
}

#[test]
fn client_certificates_are_requested_according_to_the_setting() {
    let authority = Authority::new("authority");
    let other = Authority::new("other");
    let own = authority.issue(Wanted::default());
    let issue = |of: &Authority, is_expired| {
        of.issue(Wanted {
            common_name: "alice",
            names: &[],
            is_expired,
            ..Wanted::default()
        })
    };
    let (alice, expired, stranger) = (
        issue(&authority, false),
        issue(&authority, true),
        issue(&other, false),
    );
    let name = || Ok(Some("CN=alice,O=Ottla".to_owned()));
    for (auth, shown, expected) in [
        ("none", Some(&alice), Ok(None)),
        ("requested", None, Ok(None)),
        ("requested", Some(&alice), name()),
        ("requested", Some(&expired), Err(())),
        ("required", None, Err(())),
        ("required", Some(&alice), name()),
        ("required", Some(&stranger), Err(())),
    ] {
        let server = context(
            Purpose::Listener,
            Some(&own),
            &authority.pem(),
            &[("ssl.client.auth", auth)],
        );
        let client = context(Purpose::Client, shown, &authority.pem(), &[]);
        let outcome = handshake(&server, &client, "localhost");
        assert_eq!(outcome.map_err(drop), expected, "{auth}");
    }
}

/// Keeps the names that a listener sends, and has no certificate.
#[derive(Debug, Default)]
struct Names(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for Names {
    fn resolve(&self, names: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock().unwrap() = names.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Java's clients send only a certificate whose issuer the listener names.
#[test]
fn clients_are_sent_the_names_of_all_trusted_certificates() {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let itself = self_signed(Wanted {
        common_name: "alice",
        ..Wanted::default()
    });
    let requested = [("ssl.client.auth", "requested")];
    for (certificates, expected) in [
        (format!("{}{}", authority.pem(), itself.certificate), 2),
        // More than 32,768 bytes, which Java's clients refuse, and less than a message may have.
        (itself.certificate.repeat(1_200), 0),
    ] {
        let server = context(Purpose::Listener, Some(&own), &certificates, &requested);
        let client = context(Purpose::Client, None, &authority.pem(), &[]);
        let mut config = ClientConfig::clone(&client.client());
        let names = Arc::<Names>::default();
        config.client_auth_cert_resolver = Arc::clone(&names) as _;
        connect(&server, Arc::new(config), "localhost").unwrap();
        let names = names.0.lock().unwrap();
        assert_eq!(names.len(), expected);
        let has = |text: &str| {
            let mut names = names.iter();
            names.any(|name| name.windows(text.len()).any(|it| it == text.as_bytes()))
        };
        assert_eq!(
            (has("authority"), has("alice")),
            (expected == 2, expected == 2)
        );
    }
}

#[test]
fn the_log_names_clients_whose_certificate_was_accepted_until_it_expired() {
    const FACTORY: &str = "org.apache.kafka.common.security.ssl.CommonNameLoggingSslEngineFactory";
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let issue = |of: &Authority| {
        of.issue(Wanted {
            common_name: "alice",
            names: &[],
            is_expired: true,
            ..Wanted::default()
        })
    };
    let (expired, stranger) = (issue(&authority), issue(&Authority::new("authority")));
    let with_factory = [
        ("ssl.client.auth", "required"),
        ("ssl.engine.factory.class", FACTORY),
    ];
    for (settings, shown, is_named) in [
        (&with_factory[..], &expired, true),
        (&with_factory[..], &stranger, false),
        (&with_factory[..1], &expired, false),
    ] {
        let server = context(Purpose::Listener, Some(&own), &authority.pem(), settings);
        let client = context(Purpose::Client, Some(shown), &authority.pem(), &[]);
        let said = Said::listen();
        assert!(handshake(&server, &client, "localhost").is_err());
        let line = "Certificate with common name \"CN=alice,O=Ottla\" expired on ";
        let said = said.text();
        assert_eq!(said.contains(line), is_named, "{said}");
    }
}

#[test]
fn protocols_and_cipher_suites_follow_the_settings() {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let with = |server: &[(&str, &str)], client: &[(&str, &str)]| {
        let server = context(Purpose::Listener, Some(&own), &authority.pem(), server);
        let client = context(Purpose::Client, None, &authority.pem(), client);
        handshake(&server, &client, "localhost").is_ok()
    };
    let protocols = |text| [("ssl.enabled.protocols", text)];
    assert!(with(&protocols("TLSv1.2"), &[]));
    assert!(with(&protocols("TLSv1.1,TLSv1.3"), &protocols("TLSv1.3")));
    assert!(!with(&protocols("TLSv1.2"), &protocols("TLSv1.3")));
    let suites = [(
        "ssl.cipher.suites",
        "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_256_GCM_SHA384",
    )];
    assert!(with(&suites, &[]));
    assert!(!with(&suites, &protocols("TLSv1.2")));
}

#[test]
fn the_order_of_the_listeners_cipher_suites_counts() {
    let authority = Authority::new("ours");
    let own = authority.issue(Wanted::default());
    let suites = "TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384";
    let of_client = [("ssl.cipher.suites", suites)];
    let client = context(Purpose::Client, None, &authority.pem(), &of_client);
    for (of_listener, chosen) in [
        (&[][..], "TLS13_AES_256_GCM_SHA384"),
        (
            &[(
                "ssl.cipher.suites",
                "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
            )],
            "TLS13_AES_128_GCM_SHA256",
        ),
    ] {
        let server = context(Purpose::Listener, Some(&own), &authority.pem(), of_listener);
        let name = ServerName::try_from("localhost").expect("a name");
        let mut connecting = ClientConnection::new(client.client(), name).expect("a client");
        let config = server.server().expect("a listener");
        let mut listening = ServerConnection::new(config).expect("a server");
        let mut bytes = Vec::new();
        connecting.write_tls(&mut bytes).expect("bytes");
        listening.read_tls(&mut bytes.as_slice()).expect("read");
        listening.process_new_packets().expect("a hello");
        let suite = listening.negotiated_cipher_suite().expect("a suite");
        assert_eq!(format!("{:?}", suite.suite()), chosen);
    }
}
