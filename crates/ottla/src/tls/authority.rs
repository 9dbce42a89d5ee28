//! A certificate authority and its certificates: P-256 keys and SHA-256, which every Kafka client
//! accepts.

use std::net::IpAddr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// The authority must outlive the certificates that it signs.
const AUTHORITY_DAYS: i64 = 3650;
/// Maximum length of a `CN` (RFC 5280).
const LONGEST_COMMON_NAME: usize = 64;

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    from: Date,
    /// Validity of the certificates that it signs, in days. The first is yesterday.
    days: u16,
}

/// A certificate and its private key.
pub struct Issued {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    /// Creates an authority whose certificates are valid for this many days.
    pub fn new(days: u16) -> Result<Authority, String> {
        // A day earlier, because clients' clocks may be slow.
        let today = Timestamp::now().to_zoned_datetime(TimeZone::UTC).date();
        let from = today.saturating_sub(Span::new().days(1));
        let name = format!("Ottla CA {:08x}", rand::random::<u32>());
        let most = AUTHORITY_DAYS.max(i64::from(days));
        let mut params = params(&name, &[], from, most).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        Ok(Authority { issuer, from, days })
    }

    /// The authority's certificate.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub fn der(&self) -> &[u8] {
        self.issuer.der()
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate for a broker with these names and addresses. At least one is required.
    /// It is also a client certificate, because brokers connect to each other.
    pub fn issue(&self, names: &[String]) -> Result<Issued, String> {
        let common_name = names
            .iter()
            .find(|name| name.len() <= LONGEST_COMMON_NAME)
            .map_or("broker", String::as_str);
        let days = i64::from(self.days);
        let mut params = params(common_name, names, self.from, days).map_err(failed)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued { certificate, key })
    }
}

impl Issued {
    /// Key and certificate, as `ssl.keystore.location` expects with `ssl.keystore.type=PEM`.
    pub fn pem(&self) -> String {
        format!("{}{}", self.key.serialize_pem(), self.certificate.pem())
    }

    pub fn certificate_der(&self) -> &[u8] {
        self.certificate.der()
    }

    pub fn key_der(&self) -> &[u8] {
        self.key.serialized_der()
    }
}

/// Whether this is an IP address or a host name, whose first label may be `*`.
pub fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let plain = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || (name.len() <= 253 && plain.split('.').all(is_label))
}

fn params(
    common_name: &str,
    names: &[String],
    from: Date,
    days: i64,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    // Not a day more: some clients refuse certificates that are valid for more than 825 days.
    let until = from.saturating_add(Span::new().days(days));
    params.not_before = date_time_ymd(from.year().into(), from.month() as u8, from.day() as u8);
    params.not_after = date_time_ymd(until.year().into(), until.month() as u8, until.day() as u8);
    Ok(params)
}

fn failed(error: rcgen::Error) -> String {
    format!("cannot make a certificate: {error}")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ottla_tls::CertificateFacts;

    use super::*;

    #[test]
    fn host_names_are_validated() {
        for name in [
            "a",
            "kafka-1.example.com",
            "*.example.com",
            "10.0.0.1",
            "::1",
        ] {
            assert!(is_host(name), "{name}");
        }
        for name in ["", "a:9093", "a..b", "a b", "*", "a.*.b", "é", "[::1]"] {
            assert!(!is_host(name), "{name}");
        }
    }

    #[test]
    fn a_certificate_has_its_names_and_validity() {
        let authority = Authority::new(30).unwrap();
        let names = ["a.example.com".to_owned(), "10.0.0.1".to_owned()];
        let issued = authority.issue(&names).unwrap();
        let facts = CertificateFacts::of(issued.certificate_der()).unwrap();
        let expected = ["dns:a.example.com", "ip:10.0.0.1"];
        assert_eq!(facts.alternative_names, expected);
        assert_eq!(facts.subject, "CN=a.example.com");
        let days = facts.seconds_left(SystemTime::now()) / (24 * 60 * 60);
        assert!((28..=29).contains(&days), "{days}");
        let signer = CertificateFacts::of(authority.der()).unwrap();
        assert!(signer.is_authority && !facts.is_authority);
        assert_eq!(facts.issuer, signer.subject);
    }

    #[test]
    fn a_name_too_long_for_the_subject_is_only_an_alternative_name() {
        let long = format!("{}.example.com", "a".repeat(60));
        let issued = Authority::new(30)
            .unwrap()
            .issue(std::slice::from_ref(&long))
            .unwrap();
        let facts = CertificateFacts::of(issued.certificate_der()).unwrap();
        assert_eq!(facts.subject, "CN=broker");
        assert_eq!(facts.alternative_names, [format!("dns:{long}")]);
    }
}
