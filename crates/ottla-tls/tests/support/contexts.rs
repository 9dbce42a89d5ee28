//! Contexts from settings, as a node loads them.

use ottla_testkit::certificates::Issued;
use ottla_tls::{Given, Purpose, TlsContext, TlsSettings};

pub fn context(
    purpose: Purpose,
    own: Option<&Issued>,
    trusted: &str,
    more: &[(&str, &str)],
) -> TlsContext {
    let mut given = vec![
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.certificates", trusted),
    ];
    if let Some(own) = own {
        given.extend([
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.key", own.key.as_str()),
            ("ssl.keystore.certificate.chain", &own.certificate),
        ]);
    }
    given.extend(more);
    let settings = TlsSettings::read("the test", purpose, |key| {
        let (_, value) = given.iter().find(|(known, _)| *known == key)?;
        Some(Given {
            key: key.to_owned(),
            value: (*value).to_owned(),
        })
    });
    TlsContext::load(settings).unwrap_or_else(|error| panic!("{error}"))
}
