//! The contents of a certificate: subject, names and validity.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::TlsError;
use crate::distinguished_name::rfc2253;

/// A certificate and its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    pub der: CertificateDer<'static>,
    pub facts: CertificateFacts,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFacts {
    /// In Java's RFC 2253 format.
    pub subject: String,
    pub issuer: String,
    /// Seconds since 1970. Both are inclusive.
    pub not_before: i64,
    pub not_after: i64,
    /// `dns:broker1`, `ip:10.0.0.1`, and others with a prefix for their type.
    pub alternative_names: Vec<String>,
    /// The first `CN` of the subject.
    pub common_name: Option<String>,
    /// Whether it may sign other certificates, according to its basic constraints. Certificates of
    /// version 1 have none and count as CAs.
    pub is_authority: bool,
}

impl Certificate {
    pub fn parse(der: &[u8]) -> Result<Certificate, TlsError> {
        let facts = CertificateFacts::of(der)?;
        let der = CertificateDer::from(der.to_vec());
        Ok(Certificate { der, facts })
    }

    /// The subject in DER.
    pub fn subject_der(&self) -> Option<Vec<u8>> {
        let (_, parsed) = X509Certificate::from_der(&self.der).ok()?;
        Some(parsed.subject().as_raw().to_vec())
    }
}

impl CertificateFacts {
    pub fn of(der: &[u8]) -> Result<CertificateFacts, TlsError> {
        let parsed = X509Certificate::from_der(der);
        let (_, parsed) = parsed.map_err(|_| TlsError::new("it is not an X.509 certificate"))?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.as_slice());
        let common_name = parsed.subject().iter_common_name().next();
        let constraints = parsed.basic_constraints().ok().flatten();
        let is_old = parsed.version().0 == 0;
        Ok(CertificateFacts {
            subject: rfc2253(parsed.subject()),
            issuer: rfc2253(parsed.issuer()),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            alternative_names: names.unwrap_or_default().iter().map(name).collect(),
            common_name: common_name.and_then(|it| Some(it.as_str().ok()?.to_owned())),
            is_authority: constraints.map_or(is_old, |constraints| constraints.value.ca),
        })
    }

    /// The remaining validity; negative after the expiry.
    pub fn seconds_left(&self, now: SystemTime) -> i64 {
        self.not_after - seconds(now)
    }

    /// Why the certificate is not valid now; `None` if it is.
    pub fn out_of_time(&self, now: SystemTime) -> Option<String> {
        let now = seconds(now);
        if now > self.not_after {
            return Some(format!("it expired at {}", date(self.not_after)));
        }
        (now < self.not_before).then(|| format!("it is valid from {}", date(self.not_before)))
    }

    /// Subject and validity, for people.
    pub fn describe(&self) -> String {
        let (from, to) = (date(self.not_before), date(self.not_after));
        format!("{} (valid from {from} to {to})", self.subject)
    }

    /// The end of the validity, for people.
    pub(crate) fn end(&self) -> String {
        date(self.not_after)
    }

    pub(crate) fn has_dns_names(&self) -> bool {
        self.alternative_names
            .iter()
            .any(|name| name.starts_with("dns:"))
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_secs() as i64
}

fn date(timestamp: i64) -> String {
    match ASN1Time::from_timestamp(timestamp) {
        Ok(time) => time.to_string(),
        Err(_) => format!("second {timestamp}"),
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => format!("dns:{name}"),
        GeneralName::IPAddress(bytes) => {
            let address: Option<IpAddr> = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
                16 => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
                _ => None,
            };
            address.map_or_else(
                || format!("ip:{bytes:?}"),
                |address| format!("ip:{address}"),
            )
        }
        GeneralName::RFC822Name(name) => format!("email:{name}"),
        GeneralName::URI(name) => format!("uri:{name}"),
        other => format!("{other:?}"),
    }
}
