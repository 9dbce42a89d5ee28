//! A certificate authority for tests, and certificates signed by it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Issued {
    /// Writes both to one file, as `ssl.keystore.location` with type PEM expects.
    pub fn write(&self, path: &Path) -> PathBuf {
        std::fs::write(path, format!("{}{}", self.key, self.certificate)).expect("a key store");
        path.to_path_buf()
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Properties of a certificate to issue.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub common_name: &'a str,
    /// Host names and IP addresses (subject alternative names).
    pub names: &'a [&'a str],
    pub is_expired: bool,
    /// How long it is valid from now on, in whole seconds; `None` if for many years.
    pub lasts: Option<Duration>,
    /// Whether the certificate is a CA certificate.
    pub is_authority: bool,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Wanted {
            common_name: "broker",
            names: &["localhost", "127.0.0.1"],
            is_expired: false,
            lasts: None,
            is_authority: false,
        }
    }
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params(of_authority(name)), key);
        Authority {
            issuer: issuer.expect("an authority"),
        }
    }

    /// An authority whose certificate this one signs.
    pub fn under(&self, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::signed_by(params(of_authority(name)), key, &self.issuer);
        Authority {
            issuer: issuer.expect("an authority"),
        }
    }

    /// The CA certificate, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes the CA certificate, as `ssl.truststore.location` with type PEM expects.
    pub fn write(&self, path: &Path) -> PathBuf {
        std::fs::write(path, self.pem()).expect("a trust store");
        path.to_path_buf()
    }

    pub fn issue(&self, wanted: Wanted<'_>) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let signed = params(wanted).signed_by(&key, &self.issuer);
        Issued {
            certificate: signed.expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Writes `authority.pem`, the trust store of a new authority, and `USER.pem` for each user, a key store
/// with a certificate that the authority has signed.
pub fn write_stores(dir: &Path, users: &[&str]) {
    let authority = Authority::new("authority");
    authority.write(&dir.join("authority.pem"));
    for user in users {
        let issued = authority.issue(Wanted {
            common_name: user,
            ..Wanted::default()
        });
        issued.write(&dir.join(user).with_extension("pem"));
    }
}

/// Issues a self-signed certificate.
pub fn self_signed(wanted: Wanted<'_>) -> Issued {
    let key = KeyPair::generate().expect("a key");
    let signed = params(wanted).self_signed(&key);
    Issued {
        certificate: signed.expect("a certificate").pem(),
        key: key.serialize_pem(),
    }
}

fn of_authority(name: &str) -> Wanted<'_> {
    Wanted {
        common_name: name,
        names: &[],
        is_authority: true,
        ..Wanted::default()
    }
}

fn params(wanted: Wanted<'_>) -> CertificateParams {
    let names: Vec<String> = wanted.names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Ottla");
    params
        .distinguished_name
        .push(DnType::CommonName, wanted.common_name);
    if wanted.is_expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    if let Some(lasts) = wanted.lasts {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        params.not_after = date_time_ymd(1970, 1, 1) + now.expect("after 1970") + lasts;
    }
    if wanted.is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}
