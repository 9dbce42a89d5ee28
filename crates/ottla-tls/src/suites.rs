//! Protocols and cipher suites by their Java names.

use rustls::crypto::CryptoProvider;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Java's name of a suite, which is the standard's. rustls adds the version to names of TLS 1.3
/// suites.
pub fn java_name(suite: SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => name,
    }
}

/// A provider with the suites of these names, in this order, and the unsupported names.
pub fn provider(names: &[String]) -> (CryptoProvider, Vec<String>) {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if names.is_empty() {
        return (provider, Vec::new());
    }
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for name in names {
        let suite = provider
            .cipher_suites
            .iter()
            .find(|it| java_name(**it) == *name);
        match suite {
            Some(suite) => found.push(*suite),
            None => unknown.push(name.clone()),
        }
    }
    provider.cipher_suites = found;
    (provider, unknown)
}

/// The version of a name in `ssl.enabled.protocols`.
pub fn version(name: &str) -> Option<&'static SupportedProtocolVersion> {
    match name {
        "TLSv1.3" => Some(&rustls::version::TLS13),
        "TLSv1.2" => Some(&rustls::version::TLS12),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_found_by_javas_names() {
        let names = [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
        ];
        let names = names.map(str::to_owned);
        let (provider, unknown) = provider(&names);
        let found: Vec<String> = provider
            .cipher_suites
            .iter()
            .map(|it| java_name(*it))
            .collect();
        assert_eq!(found, names[..2]);
        assert_eq!(unknown, names[2..]);
    }
}
