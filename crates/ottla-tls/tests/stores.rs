//! Stores written by the tools of Java and OpenSSL, and error messages for unusable ones.

// Tests create files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::Path;

use ottla_testkit::certificates::{Authority, Wanted};
use ottla_tls::{Given, Purpose, Reloaded, TlsContext, TlsSettings};

const NAME: &str = "CN=broker,OU=Tests,O=Ottla";

fn store(name: &str) -> String {
    format!("{}/tests/stores/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn settings(purpose: Purpose, given: &[(&str, &str)]) -> TlsSettings {
    TlsSettings::read("listener SSL", purpose, |key| {
        let (_, value) = given.iter().find(|(known, _)| *known == key)?;
        Some(Given {
            key: key.to_owned(),
            value: (*value).to_owned(),
        })
    })
}

fn load(given: &[(&str, &str)]) -> Result<TlsContext, String> {
    TlsContext::load(settings(Purpose::ListenerOfNodes, given)).map_err(|error| error.0)
}

#[test]
fn stores_of_every_format_hold_the_same_key() {
    for (kind, keys, key_password) in [
        ("JKS", "key.jks", Some("key-secret")),
        // Java examines the bytes and ignores the type.
        ("PKCS12", "key.jks", Some("key-secret")),
        ("PKCS12", "key.p12", None),
        ("JKS", "legacy.p12", None),
        ("PEM", "encrypted.pem", Some("key-secret")),
    ] {
        for trust in ["trust.jks", "trust.p12"] {
            let (keys, trust) = (store(keys), store(trust));
            let mut given = vec![
                ("ssl.keystore.type", kind),
                ("ssl.keystore.location", &keys),
                ("ssl.truststore.location", &trust),
                ("ssl.truststore.password", "store-secret"),
                ("ssl.client.auth", "required"),
            ];
            if kind != "PEM" {
                given.push(("ssl.keystore.password", "store-secret"));
            }
            given.extend(key_password.map(|password| ("ssl.key.password", password)));
            // A listener for nodes performs a handshake with itself when it is loaded.
            let loaded = load(&given).unwrap_or_else(|error| panic!("{kind} {keys}: {error}"));
            let (alias, facts) = &loaded.certificates()[0];
            assert!(alias == "broker" || kind == "PEM", "{alias}");
            assert_eq!(facts.subject, NAME);
            let expected = ["dns:localhost", "ip:127.0.0.1"];
            assert_eq!(facts.alternative_names, expected);
        }
    }
}

#[test]
fn errors_of_unusable_stores_contain_no_passwords() {
    let (jks, p12, pem) = (store("key.jks"), store("key.p12"), store("encrypted.pem"));
    let location = |path: &str| ("ssl.keystore.location", path.to_owned());
    let password = |text: &str| ("ssl.keystore.password", text.to_owned());
    let kind = |text: &str| ("ssl.keystore.type", text.to_owned());
    let key_password = |text: &str| ("ssl.key.password", text.to_owned());
    for (given, expected) in [
        (
            vec![],
            "listener SSL has no certificate; give ssl.keystore.location",
        ),
        (
            vec![location(&jks)],
            "SSL key store is specified, but key store password is not specified.",
        ),
        (
            vec![password("x")],
            "SSL key store is not specified, but key store password is specified.",
        ),
        (
            vec![location(&jks), password("guessed")],
            "the password is wrong, or the file was changed",
        ),
        (
            vec![location(&jks), password("store-secret")],
            "the key of broker: the password of the key is wrong",
        ),
        (
            vec![location(&p12), password("guessed")],
            "the PKCS12 file cannot be opened",
        ),
        (
            vec![location(&p12), kind("PEM")],
            "it is not PEM; if it is a PKCS12 file, give PKCS12 as its type",
        ),
        (
            vec![location(&pem), password("x")],
            "it is PEM; give PEM as its type",
        ),
        (
            vec![location(&pem), kind("PEM")],
            "the private key is encrypted; give ssl.key.password",
        ),
        (
            vec![location(&pem), kind("PEM"), key_password("guessed")],
            "the private key cannot be decrypted",
        ),
        (
            vec![location("/nowhere"), kind("PEM")],
            "ssl.keystore.location=/nowhere: cannot read the file",
        ),
        (
            vec![location(&p12), kind("BKS")],
            "ssl.keystore.type=BKS: give PEM, PKCS12 or JKS",
        ),
    ] {
        let given: Vec<_> = given
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        let error = load(&given).map(drop).expect_err(expected);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("guessed"), "{error}");
    }
}

/// Writes a certificate of the authority and a matching trust store to a folder.
fn write(dir: &Path, authority: &Authority, wanted: Wanted<'_>) {
    authority.issue(wanted).write(&dir.join("key.pem"));
    authority.write(&dir.join("trust.pem"));
}

#[test]
fn a_reload_follows_kafkas_rules() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("first");
    write(dir.path(), &authority, Wanted::default());
    let (key, trust) = (dir.path().join("key.pem"), dir.path().join("trust.pem"));
    let (key, trust) = (key.display().to_string(), trust.display().to_string());
    let given = [
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", key.as_str()),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", &trust),
    ];
    let context = load(&given).unwrap();
    let reload = |more: &[(&str, &str)]| {
        let given: Vec<_> = given.iter().chain(more).copied().collect();
        context
            .reload(settings(Purpose::ListenerOfNodes, &given))
            .map_err(|error| error.0)
    };
    assert_eq!(reload(&[]), Ok(Reloaded::Unchanged));
    let before = context.server().unwrap();

    let other_name = Wanted {
        common_name: "other",
        ..Wanted::default()
    };
    write(dir.path(), &authority, other_name);
    let refused = reload(&[]).unwrap_err();
    assert!(refused.contains("Keystore DistinguishedName does not match:  existing={alias=kafka, DN=CN=broker,O=Ottla}"), "{refused}");

    let fewer_names = Wanted {
        names: &["localhost"],
        ..Wanted::default()
    };
    write(dir.path(), &authority, fewer_names);
    let refused = reload(&[]).unwrap_err();
    assert!(
        refused.contains("Keystore SubjectAltNames do not match"),
        "{refused}"
    );

    // Nodes that have not been reloaded would not trust it.
    write(dir.path(), &Authority::new("second"), Wanted::default());
    let refused = reload(&[]).unwrap_err();
    assert!(
        refused.contains("other nodes could not trust the new certificate"),
        "{refused}"
    );
    assert!(
        std::sync::Arc::ptr_eq(&before, &context.server().unwrap()),
        "the old one is in force"
    );

    write(dir.path(), &authority, Wanted::default());
    assert_eq!(reload(&[]), Ok(Reloaded::Replaced));
    write(dir.path(), &authority, other_name);
    assert_eq!(
        reload(&[("ssl.allow.dn.changes", "true")]),
        Ok(Reloaded::Replaced)
    );
}

#[test]
fn a_listener_of_nodes_has_to_trust_itself() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &Authority::new("one"), Wanted::default());
    Authority::new("another").write(&dir.path().join("trust.pem"));
    let (key, trust) = (dir.path().join("key.pem"), dir.path().join("trust.pem"));
    let refused = load(&[
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", &key.display().to_string()),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", &trust.display().to_string()),
    ]);
    let refused = refused.map(drop).unwrap_err();
    assert!(
        refused.contains("A client SSLEngine created with the provided settings can't connect"),
        "{refused}"
    );
}
