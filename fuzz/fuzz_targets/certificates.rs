//! The certificates of a TLS peer, each after its length in two bytes: their contents, the principal, and the search for a
//! path to a trusted one.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use ottla_tls::authority_leaf::{ShownBy, is_trusted};
use ottla_tls::{Certificate, PrincipalMapper};
use rustls_pki_types::UnixTime;

fuzz_target!(|bytes: &[u8]| {
    let mapper = PrincipalMapper::parse("RULE:^CN=(.*?),O=.*$/$1/L,DEFAULT").expect("good rules");
    let mut shown = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (certificate, after) = after.split_at(length);
        rest = after;
        let Ok(certificate) = Certificate::parse(certificate) else { continue };
        assert!(!certificate.facts.describe().is_empty());
        let _ = mapper.name(&certificate.facts.subject);
        shown.push(certificate.der);
    }
    let Some((leaf, intermediates)) = shown.split_first() else { return };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    for shown_by in [ShownBy::Server, ShownBy::Client] {
        assert!(!is_trusted(leaf, intermediates, &[], shown_by, now));
        let _ = is_trusted(leaf, intermediates, intermediates, shown_by, now);
    }
});
