//! Key stores and trust stores of all formats: PEM in a setting or file, PKCS12, JKS.
//!
//! The permitted combinations of settings and the messages about others are Kafka's:
//! `DefaultSslEngineFactory.createKeystore` and `createTruststore`.

use aws_lc_rs::digest::{SHA256, digest};
use p12_keystore::{KeyStore as Pkcs12, KeyStoreEntry, Pkcs12ImportPolicy};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

use crate::certificate::Certificate;
use crate::settings::TlsSettings;
use crate::{TlsError, jks, pem};

/// A private key and its certificate chain, the leaf first.
pub struct Identity {
    pub alias: String,
    pub key: PrivateKeyDer<'static>,
    pub chain: Vec<Certificate>,
}

/// The keys of a listener or client, in the order of the store.
pub struct KeyStore {
    pub identities: Vec<Identity>,
    pub origin: Origin,
}

pub struct TrustStore {
    pub certificates: Vec<Certificate>,
    pub origin: Origin,
}

/// The origin of a store.
pub struct Origin {
    /// The setting without prefix.
    pub key: &'static str,
    /// The state of the file when it was read; `None` for PEM in the setting itself.
    pub stamp: Option<FileStamp>,
}

/// Identifies the contents of a file. Comparing contents detects every kind of change: a file
/// written by an editor, another one renamed over it, or a symbolic link in its path replaced by
/// Kubernetes. The files are small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStamp {
    path: String,
    digest: Vec<u8>,
}

impl FileStamp {
    fn of(path: &str, bytes: &[u8]) -> FileStamp {
        FileStamp {
            path: path.to_owned(),
            digest: digest(&SHA256, bytes).as_ref().to_vec(),
        }
    }

    /// Whether the file has changed. A missing file does not count, because it may be about to be
    /// replaced.
    pub fn is_outdated(&self) -> bool {
        let bytes = ottla_sync::fs::read(&self.path);
        bytes.is_ok_and(|bytes| FileStamp::of(&self.path, &bytes) != *self)
    }
}

/// The settings of a store: `ssl.keystore` or `ssl.truststore`.
struct Names {
    location: &'static str,
    password: &'static str,
    kind: &'static str,
}

const KEYSTORE: Names = Names {
    location: "ssl.keystore.location",
    password: "ssl.keystore.password",
    kind: "ssl.keystore.type",
};

const TRUSTSTORE: Names = Names {
    location: "ssl.truststore.location",
    password: "ssl.truststore.password",
    kind: "ssl.truststore.type",
};

impl KeyStore {
    pub fn load(settings: &TlsSettings) -> Result<Option<KeyStore>, TlsError> {
        let kind = kind(settings, &KEYSTORE)?;
        let path = settings.text(KEYSTORE.location);
        let password = settings.password(KEYSTORE.password);
        let key_password = settings.password("ssl.key.password");
        let key = settings.text("ssl.keystore.key");
        let chain = settings.text("ssl.keystore.certificate.chain");
        let wrong = |key: &str, message: &str| Err(settings.error(key, message));
        match (key, chain) {
            (Some(_), _) if kind != Kind::Pem => {
                return wrong(
                    "ssl.keystore.key",
                    &format!(
                        "SSL private key can be specified only for PEM, but key store type is {}.",
                        settings.text(KEYSTORE.kind).unwrap_or("JKS")
                    ),
                );
            }
            (Some(_), None) => {
                return wrong(
                    "ssl.keystore.key",
                    "SSL private key is specified, but certificate chain is not specified.",
                );
            }
            (Some(_), Some(_)) if path.is_some() => {
                return wrong(
                    KEYSTORE.location,
                    "Both SSL key store location and separate private key are specified.",
                );
            }
            (Some(_), Some(_)) if password.is_some() => {
                return wrong(
                    KEYSTORE.password,
                    "SSL key store password cannot be specified with PEM format, only key password may be \
                     specified.",
                );
            }
            (Some(key), Some(chain)) => {
                let identity =
                    pem_identity(settings, "ssl.keystore.key", key, chain, key_password)?;
                return Ok(Some(KeyStore {
                    identities: vec![identity],
                    origin: Origin {
                        key: "ssl.keystore.certificate.chain",
                        stamp: None,
                    },
                }));
            }
            (None, Some(_)) => {
                return wrong(
                    "ssl.keystore.certificate.chain",
                    "SSL certificate chain is specified, but private key is not specified",
                );
            }
            (None, None) => {}
        }
        let Some(path) = path else {
            return match password {
                None => Ok(None),
                Some(_) => wrong(
                    KEYSTORE.password,
                    "SSL key store is not specified, but key store password is specified.",
                ),
            };
        };
        let (bytes, origin) = read(settings, KEYSTORE.location, path)?;
        let identities = match (kind, password) {
            (Kind::Pem, Some(_)) => {
                return wrong(
                    KEYSTORE.password,
                    "SSL key store password cannot be specified with PEM format, only key password may be \
                     specified",
                );
            }
            (Kind::Pem, None) => {
                let text = text(settings, KEYSTORE.location, &bytes)?;
                vec![pem_identity(
                    settings,
                    KEYSTORE.location,
                    text,
                    text,
                    key_password,
                )?]
            }
            (_, None) => {
                return wrong(
                    KEYSTORE.location,
                    "SSL key store is specified, but key store password is not specified.",
                );
            }
            (_, Some(password)) => {
                identities(settings, &bytes, password, key_password.unwrap_or(password))?
            }
        };
        Ok(Some(KeyStore { identities, origin }))
    }
}

impl TrustStore {
    pub fn load(settings: &TlsSettings) -> Result<Option<TrustStore>, TlsError> {
        let kind = kind(settings, &TRUSTSTORE)?;
        let path = settings.text(TRUSTSTORE.location);
        let password = settings.password(TRUSTSTORE.password);
        let wrong = |key: &str, message: &str| Err(settings.error(key, message));
        let key = "ssl.truststore.certificates";
        if let Some(pem) = settings.text(key) {
            if kind != Kind::Pem {
                return wrong(
                    key,
                    &format!(
                        "SSL trust store certs can be specified only for PEM, but trust store type is {}.",
                        settings.text(TRUSTSTORE.kind).unwrap_or("JKS")
                    ),
                );
            }
            if path.is_some() {
                return wrong(
                    TRUSTSTORE.location,
                    "Both SSL trust store location and separate trust certificates are specified.",
                );
            }
            if password.is_some() {
                return wrong(
                    TRUSTSTORE.password,
                    "SSL trust store password cannot be specified for PEM format.",
                );
            }
            return Ok(Some(TrustStore {
                certificates: pem_certificates(settings, key, pem)?,
                origin: Origin { key, stamp: None },
            }));
        }
        let Some(path) = path else {
            return match password {
                None => Ok(None),
                Some(_) => wrong(
                    TRUSTSTORE.password,
                    "SSL trust store is not specified, but trust store password is specified.",
                ),
            };
        };
        let (bytes, origin) = read(settings, TRUSTSTORE.location, path)?;
        let certificates = match (kind, password) {
            (Kind::Pem, Some(_)) => {
                return wrong(
                    TRUSTSTORE.password,
                    "SSL trust store password cannot be specified for PEM format.",
                );
            }
            (Kind::Pem, None) => {
                let text = text(settings, TRUSTSTORE.location, &bytes)?;
                pem_certificates(settings, TRUSTSTORE.location, text)?
            }
            (_, password) => trusted(settings, &bytes, password)?,
        };
        if certificates.is_empty() {
            return wrong(
                TRUSTSTORE.location,
                "it has no trusted certificate; import one with `keytool -importcert`",
            );
        }
        Ok(Some(TrustStore {
            certificates,
            origin,
        }))
    }
}

/// The certificates that a client with these settings trusts, from the trust store or from the
/// system. Blocks.
pub fn trusted_certificates(
    settings: &TlsSettings,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    Ok(match TrustStore::load(settings)? {
        Some(store) => store.certificates.into_iter().map(|it| it.der).collect(),
        None => rustls_native_certs::load_native_certs().certs,
    })
}

/// The client's certificate chain, its own certificate first, and the private key. `None` if the
/// settings have no key store. Blocks.
pub fn client_identity(
    settings: &TlsSettings,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, TlsError> {
    let store = KeyStore::load(settings)?;
    let first = store.and_then(|store| store.identities.into_iter().next());
    Ok(first.map(|identity| {
        let chain = identity.chain.into_iter().map(|it| it.der);
        (chain.collect(), identity.key)
    }))
}

/// The one PKCS#8 key in a PEM text, decrypted. `password_key` is the setting that has the password.
pub fn pkcs8_key(
    pem: &str,
    password: Option<&str>,
    password_key: &str,
) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    let entries = pem::entries(pem).map_err(|error| error.to_string())?;
    let mut keys = entries
        .iter()
        .filter(|entry| entry.label == "PRIVATE KEY" || entry.label == "ENCRYPTED PRIVATE KEY");
    let (Some(entry), None) = (keys.next(), keys.next()) else {
        return Err(
            "there has to be one PRIVATE KEY or ENCRYPTED PRIVATE KEY (PKCS#8) in it; write one with \
             `openssl pkcs8 -topk8`"
                .to_owned(),
        );
    };
    match (entry.label == "ENCRYPTED PRIVATE KEY", password) {
        (false, _) => Ok(PrivatePkcs8KeyDer::from(entry.bytes.clone())),
        (true, Some(password)) => decrypted(&entry.bytes, password, password_key),
        (true, None) => Err(format!("the private key is encrypted; give {password_key}")),
    }
}

/// The format of a store. As in Java, JKS and PKCS12 are distinguished by their bytes, whichever
/// type is configured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pem,
    Binary,
}

fn kind(settings: &TlsSettings, names: &Names) -> Result<Kind, TlsError> {
    match settings.text(names.kind).unwrap_or("JKS") {
        "PEM" => Ok(Kind::Pem),
        kind if ["JKS", "PKCS12", "P12"]
            .iter()
            .any(|it| it.eq_ignore_ascii_case(kind)) =>
        {
            Ok(Kind::Binary)
        }
        _ => Err(settings.error(names.kind, "give PEM, PKCS12 or JKS")),
    }
}

fn read(
    settings: &TlsSettings,
    key: &'static str,
    path: &str,
) -> Result<(Vec<u8>, Origin), TlsError> {
    let bytes = ottla_sync::fs::read(path).map_err(|error| {
        settings.error(
            key,
            format!("cannot read the file: {error}; give one that this process can read"),
        )
    })?;
    let stamp = Some(FileStamp::of(path, &bytes));
    Ok((bytes, Origin { key, stamp }))
}

fn text<'a>(settings: &TlsSettings, key: &str, bytes: &'a [u8]) -> Result<&'a str, TlsError> {
    std::str::from_utf8(bytes).map_err(|_| {
        let kind = if jks::is_jks(bytes) { "JKS" } else { "PKCS12" };
        settings.error(
            key,
            format!("it is not PEM; if it is a {kind} file, give {kind} as its type"),
        )
    })
}

fn pem_certificates(
    settings: &TlsSettings,
    key: &str,
    text: &str,
) -> Result<Vec<Certificate>, TlsError> {
    let entries = pem::entries(text).map_err(|error| settings.error(key, error))?;
    let entries = entries
        .iter()
        .filter(|entry| entry.label.contains("CERTIFICATE"));
    let certificates = entries.map(|entry| certificate(settings, key, &entry.bytes));
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    match certificates.is_empty() {
        true => Err(settings.error(key, "No matching CERTIFICATE entries in PEM file")),
        false => Ok(certificates),
    }
}

fn certificate(settings: &TlsSettings, key: &str, der: &[u8]) -> Result<Certificate, TlsError> {
    Certificate::parse(der).map_err(|error| {
        settings.error(
            key,
            format!("one of its certificates cannot be read: {error}"),
        )
    })
}

fn pem_identity(
    settings: &TlsSettings,
    key_from: &str,
    key_text: &str,
    chain_text: &str,
    password: Option<&str>,
) -> Result<Identity, TlsError> {
    let chain_from = match key_from {
        "ssl.keystore.key" => "ssl.keystore.certificate.chain",
        _ => key_from,
    };
    let chain = pem_certificates(settings, chain_from, chain_text)?;
    let entries = pem::entries(key_text).map_err(|error| settings.error(key_from, error))?;
    let keys: Vec<_> = entries
        .iter()
        .filter(|entry| entry.label.contains("PRIVATE KEY"))
        .collect();
    let entry = match keys.as_slice() {
        [entry] => *entry,
        [] => return Err(settings.error(key_from, "No matching PRIVATE KEY entries in PEM file")),
        _ => {
            let message = format!("Expected one private key, but found {}", keys.len());
            return Err(settings.error(key_from, message));
        }
    };
    let is_encrypted = entry.label.contains("ENCRYPTED");
    let key = match (password, is_encrypted) {
        (Some(password), true) => decrypted(&entry.bytes, password, "ssl.key.password")
            .map_err(|reason| settings.error(key_from, reason))?
            .into(),
        (None, true) => {
            return Err(settings.error(
                key_from,
                "the private key is encrypted; give ssl.key.password",
            ));
        }
        (_, false) => {
            let bytes = entry.bytes.clone();
            match entry.label.as_str() {
                "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(bytes)),
                "EC PRIVATE KEY" => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(bytes)),
                _ => PrivatePkcs8KeyDer::from(bytes).into(),
            }
        }
    };
    let alias = "kafka".to_owned();
    Ok(Identity { alias, key, chain })
}

fn decrypted(
    der: &[u8],
    password: &str,
    password_key: &str,
) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    let key = EncryptedPrivateKeyInfoRef::try_from(der)
        .map_err(|error| format!("the private key is not an encrypted PKCS#8 key: {error}"))?;
    let key = key.decrypt(password).map_err(|_| {
        format!(
            "the private key cannot be decrypted: {password_key} is wrong, or the key is not encrypted by PBES2; \
             convert it with `openssl pkcs8 -topk8 -v2 aes-256-cbc`"
        )
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()))
}

/// The keys of a PKCS12 or JKS file.
fn identities(
    settings: &TlsSettings,
    bytes: &[u8],
    password: &str,
    key_password: &str,
) -> Result<Vec<Identity>, TlsError> {
    let wrong = |message: String| settings.error(KEYSTORE.location, message);
    let mut found = Vec::new();
    let certificates = |chain: Vec<Vec<u8>>| {
        let chain = chain
            .iter()
            .map(|der| certificate(settings, KEYSTORE.location, der));
        chain.collect::<Result<Vec<_>, _>>()
    };
    if jks::is_jks(bytes) {
        let store = jks::read(bytes, Some(password)).map_err(|error| wrong(error.to_string()))?;
        for entry in store.keys {
            let key = entry
                .key(key_password)
                .map_err(|error| wrong(format!("the key of {}: {error}", entry.alias)))?;
            found.push(Identity {
                key: PrivatePkcs8KeyDer::from(key).into(),
                chain: certificates(entry.chain)?,
                alias: entry.alias,
            });
        }
    } else {
        for (alias, entry) in pkcs12(bytes, password).map_err(wrong)?.entries() {
            let KeyStoreEntry::PrivateKeyChain(chain) = entry else {
                continue;
            };
            found.push(Identity {
                alias: alias.clone(),
                key: PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec()).into(),
                chain: certificates(
                    chain
                        .certs()
                        .iter()
                        .map(|it| it.as_der().to_vec())
                        .collect(),
                )?,
            });
        }
    }
    found.retain(|identity| !identity.chain.is_empty());
    match found.is_empty() {
        true => Err(wrong("it has no private key with a certificate".to_owned())),
        false => Ok(found),
    }
}

/// The trusted certificates of a PKCS12 or JKS file.
fn trusted(
    settings: &TlsSettings,
    bytes: &[u8],
    password: Option<&str>,
) -> Result<Vec<Certificate>, TlsError> {
    let wrong = |message: String| settings.error(TRUSTSTORE.location, message);
    let ders: Vec<Vec<u8>> = if jks::is_jks(bytes) {
        let store = jks::read(bytes, password).map_err(|error| wrong(error.to_string()))?;
        let trusted = store.trusted.into_iter().map(|(_, der)| der);
        let of_keys = store
            .keys
            .into_iter()
            .filter_map(|entry| entry.chain.into_iter().next());
        trusted.chain(of_keys).collect()
    } else {
        let store = pkcs12(bytes, password.unwrap_or_default()).map_err(wrong)?;
        let entries = store.entries().filter_map(|(_, entry)| match entry {
            KeyStoreEntry::Certificate(certificate) => Some(certificate.as_der().to_vec()),
            KeyStoreEntry::PrivateKeyChain(chain) => chain
                .certs()
                .first()
                .map(|certificate| certificate.as_der().to_vec()),
            _ => None,
        });
        entries.collect()
    };
    ders.iter()
        .map(|der| certificate(settings, TRUSTSTORE.location, der))
        .collect()
}

fn pkcs12(bytes: &[u8], password: &str) -> Result<Pkcs12, String> {
    if bytes.first() != Some(&0x30) {
        let advice = match bytes.starts_with(b"-----BEGIN") {
            true => "it is PEM; give PEM as its type",
            false => "it is neither PKCS12 nor JKS",
        };
        return Err(advice.to_owned());
    }
    Pkcs12::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Relaxed).map_err(|error| {
        format!("the PKCS12 file cannot be opened: {error}; is the password right?")
    })
}
