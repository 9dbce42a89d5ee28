//! Key stores and trust stores in PKCS12, as created by Java's `keytool`.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use p12_keystore::error::Error;
use p12_keystore::{Certificate, KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};

use super::authority::Issued;

/// A random password of letters, digits, `-` and `_`.
pub fn random_password() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 18]>())
}

/// The key store of a broker with its certificate chain. `authority` is the issuer's certificate.
pub fn key_store(issued: &Issued, authority: &[u8], password: &str) -> Result<Vec<u8>, String> {
    let build = || {
        let key = PrivateKey::from_der(issued.key_der())?;
        let chain = [
            Certificate::from_der(issued.certificate_der())?,
            Certificate::from_der(authority)?,
        ];
        let chain = PrivateKeyChain::new("broker", key, chain);
        write("broker", KeyStoreEntry::PrivateKeyChain(chain), password)
    };
    build().map_err(failed)
}

/// A trust store for an authority.
pub fn trust_store(authority: &[u8], password: &str) -> Result<Vec<u8>, String> {
    let build = || {
        let certificate = Certificate::from_der(authority)?;
        write("ca", KeyStoreEntry::Certificate(certificate), password)
    };
    build().map_err(failed)
}

fn write(alias: &str, entry: KeyStoreEntry, password: &str) -> Result<Vec<u8>, Error> {
    let mut store = KeyStore::new();
    store.add_entry(alias, entry);
    store.writer(password).write()
}

fn failed(error: Error) -> String {
    format!("cannot make a PKCS12 store: {error}")
}
