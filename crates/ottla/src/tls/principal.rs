//! `ottla tls principal`: the principal that a certificate gives to the client that presents it.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use ottla_tls::{
    CertificateFacts, Given, PrincipalMapper, Purpose, TlsSettings, trusted_certificates,
};

/// Print the principal of the client that presents a certificate, as ACLs and super.users name it.
#[derive(Args, Debug)]
pub struct PrincipalArgs {
    /// PEM file with the certificate, such as the client's key store. The first certificate counts.
    #[arg(value_name = "CERTIFICATE")]
    certificate: PathBuf,
    /// The brokers' ssl.principal.mapping.rules.
    #[arg(long, value_name = "RULES", default_value = "DEFAULT")]
    rules: String,
}

/// Returns the text to print.
pub fn principal(args: &PrincipalArgs) -> Result<String, String> {
    let path = args.certificate.display().to_string();
    let settings = TlsSettings::read("the certificate", Purpose::Client, |key| {
        let (shown_key, value) = match key {
            "ssl.truststore.type" => (key, "PEM"),
            "ssl.truststore.location" => ("CERTIFICATE", path.as_str()),
            _ => return None,
        };
        Some(Given {
            key: shown_key.to_owned(),
            value: value.to_owned(),
        })
    });
    let certificates = trusted_certificates(&settings).map_err(|error| error.to_string())?;
    let first = certificates.first();
    let first = first.ok_or_else(|| format!("CERTIFICATE={path}: it has no certificate"))?;
    let facts = CertificateFacts::of(first)
        .map_err(|error| format!("CERTIFICATE={path}: {error}; give a certificate in PEM"))?;
    let mapper = PrincipalMapper::parse(&args.rules)
        .map_err(|error| format!("--rules {}: {error}", args.rules))?;
    let name = mapper
        .name(&facts.subject)
        .map_err(|error| format!("--rules {}: {error}", args.rules))?;
    let mut text = format!(
        "principal    User:{name}\ncertificate  {}\nissuer       {}\n",
        facts.describe(),
        facts.issuer
    );
    if let Some(reason) = facts.out_of_time(SystemTime::now()) {
        text.push_str(&format!("refused      {reason}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ottla_testkit::certificates::{Authority, Wanted};

    use super::*;

    fn of(certificate: &Path, rules: &str) -> Result<String, String> {
        principal(&PrincipalArgs {
            certificate: certificate.to_path_buf(),
            rules: rules.to_owned(),
        })
    }

    #[test]
    fn the_rules_map_the_subject_of_the_first_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("authority");
        let mut issued = authority.issue(Wanted {
            common_name: "alice",
            is_expired: true,
            ..Wanted::default()
        });
        issued.certificate += &authority.pem();
        let store = issued.write(&dir.path().join("alice.pem"));
        let text = of(&store, "DEFAULT").unwrap();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("principal    User:CN=alice,O=Ottla"),
            "{text}"
        );
        let certificate = lines.next().unwrap();
        assert!(
            certificate.starts_with("certificate  CN=alice,O=Ottla (valid from "),
            "{text}"
        );
        assert_eq!(lines.next(), Some("issuer       CN=authority,O=Ottla"));
        let refused = lines.next().unwrap();
        assert!(refused.starts_with("refused      it expired at "), "{text}");

        let mapped = of(&store, "RULE:^CN=(.*?),.*$/$1/U,DEFAULT").unwrap();
        assert!(mapped.starts_with("principal    User:ALICE\n"), "{mapped}");
        let unmapped = of(&store, "RULE:^CN=bob$/bob/").unwrap_err();
        assert!(unmapped.contains("CN=alice,O=Ottla"), "{unmapped}");
        let wrong = of(&store, "RULE:").unwrap_err();
        assert!(wrong.starts_with("--rules RULE:: "), "{wrong}");
    }

    #[test]
    fn the_error_names_the_file() {
        let missing = of(Path::new("/nowhere/alice.pem"), "DEFAULT").unwrap_err();
        assert!(
            missing.starts_with("CERTIFICATE=/nowhere/alice.pem: cannot read the file"),
            "{missing}"
        );
    }
}
