//! CA certificates that a server or client uses as its own. People create them with `keytool` or
//! `openssl req -x509`. Java accepts them; webpki does not, according to the web profile of RFC
//! 5280.
//!
//! The search for a path is deliberately simple: each certificate must be signed by the next one,
//! which must be a CA; all except the trusted one at the end must be valid now. Anything that this
//! code does not support, such as name constraints, leads to rejection. So does a chain that takes too
//! many signature verifications: the peer that sends it is unknown, and waits on a thread that serves
//! other connections.

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// The maximum length of a path.
const MAX_PATH: usize = 10;
/// The maximum number of signatures that are verified for one certificate. webpki has such a limit too.
const MAX_SIGNATURES: usize = 20;
/// Supported critical extensions: key usage, subject alternative names, basic constraints and
/// extended key usage.
const UNDERSTOOD: &[&str] = &["2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.37"];
/// `sha1WithRSAEncryption` and `ecdsa-with-SHA1`.
const WEAK_SIGNATURES: &[&str] = &["1.2.840.113549.1.1.5", "1.2.840.10045.4.1"];

/// Whether there is a path from `leaf` to a trusted certificate. `shown_by` is the side that
/// presents it.
pub fn is_trusted(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    trusted: &[CertificateDer<'static>],
    shown_by: ShownBy,
    now: UnixTime,
) -> bool {
    let Ok(now) = ASN1Time::from_timestamp(now.as_secs() as i64) else {
        return false;
    };
    let Some(leaf) = parse(leaf) else {
        return false;
    };
    let uses = leaf.extended_key_usage();
    let is_for_this = match uses {
        Ok(None) => true,
        Ok(Some(uses)) => {
            uses.value.any
                || match shown_by {
                    ShownBy::Server => uses.value.server_auth,
                    ShownBy::Client => uses.value.client_auth,
                }
        }
        Err(_) => false,
    };
    if !is_for_this || !is_usable(&leaf, now) {
        return false;
    }
    let trusted: Vec<_> = trusted.iter().filter_map(|der| parse(der)).collect();
    let mut unused: Vec<_> = intermediates.iter().filter_map(|der| parse(der)).collect();
    let mut current = leaf;
    let mut signatures = 0;
    for depth in 0..MAX_PATH {
        let mut has_signed = |issuer: &X509Certificate<'_>| {
            may_have_signed(issuer, &current, depth) && {
                signatures += 1;
                signatures <= MAX_SIGNATURES && is_signature_of(issuer, &current)
            }
        };
        if trusted.iter().any(&mut has_signed) {
            return true;
        }
        let next = unused
            .iter()
            .position(|issuer| is_usable(issuer, now) && has_signed(issuer));
        let Some(next) = next else {
            return false;
        };
        current = unused.swap_remove(next);
    }
    false
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownBy {
    Server,
    Client,
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

fn is_usable(certificate: &X509Certificate<'_>, now: ASN1Time) -> bool {
    let mut critical = certificate.iter_extensions().filter(|it| it.critical);
    certificate.validity().is_valid_at(now)
        && critical.all(|it| UNDERSTOOD.contains(&&*it.oid.to_id_string()))
}

/// Whether `issuer` is allowed to sign `signed`, and `signed` names it. `below` is the number of CAs
/// between `issuer` and the leaf.
fn may_have_signed(
    issuer: &X509Certificate<'_>,
    signed: &X509Certificate<'_>,
    below: usize,
) -> bool {
    if issuer.subject().as_raw() != signed.issuer().as_raw() {
        return false;
    }
    let has_name_constraints = !matches!(issuer.name_constraints(), Ok(None));
    let may_sign = match issuer.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    let is_authority = match issuer.basic_constraints() {
        Ok(Some(constraints)) => {
            let limit = constraints.value.path_len_constraint;
            constraints.value.ca && limit.is_none_or(|limit| below <= limit as usize)
        }
        _ => false,
    };
    let algorithm = signed.signature_algorithm.algorithm.to_id_string();
    is_authority && may_sign && !has_name_constraints && !WEAK_SIGNATURES.contains(&&*algorithm)
}

fn is_signature_of(issuer: &X509Certificate<'_>, signed: &X509Certificate<'_>) -> bool {
    signed.verify_signature(Some(issuer.public_key())).is_ok()
}
