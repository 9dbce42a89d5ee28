//! Initial credentials of a cluster: `storage format --add-scram`.
//!
//! Kafka: `org.apache.kafka.metadata.storage.ScramParser`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ottla_client::ScramMechanism;
use ottla_protocol::metadata_records::{MetadataRecord, UserScramCredentialRecord};

const DEFAULT_ITERATIONS: u32 = 4096;

/// Parses `SCRAM-SHA-256=[name=alice,password=secret]`, optionally with `iterations` and `salt`,
/// and with `saltedpassword` instead of the password.
pub(crate) fn parse(argument: &str) -> anyhow::Result<MetadataRecord> {
    let argument = argument.trim();
    let Some((mechanism_name, settings)) = argument.split_once('=') else {
        bail!(
            "--add-scram: there is no equals sign; write SCRAM-SHA-256=[name=alice,password=secret]"
        );
    };
    let Some(mechanism) = ScramMechanism::from_name(mechanism_name) else {
        bail!(
            "The add-scram mechanism {mechanism_name} is not supported; there are SCRAM-SHA-256 and \
             SCRAM-SHA-512."
        );
    };
    let settings = settings
        .strip_prefix('[')
        .context("--add-scram: the settings must begin with [")?
        .strip_suffix(']')
        .context("--add-scram: the settings must end with ]")?;
    let mut parts = BTreeMap::new();
    for part in settings.split(',') {
        let Some((key, value)) = part.split_once('=') else {
            bail!("--add-scram: a setting has no equals sign; write [name=alice,password=secret]");
        };
        let unquoted = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'));
        parts.insert(key, unquoted.unwrap_or(value));
    }
    let name = parts
        .remove("name")
        .context("You must supply 'name' to add-scram")?;
    let decoded = |key: &str, text: &str| {
        STANDARD
            .decode(text)
            .with_context(|| format!("--add-scram: {key} is not Base64"))
    };
    let salt = match parts.remove("salt") {
        Some(text) => Some(decoded("salt", text)?),
        None => None,
    };
    let iterations = match parts.remove("iterations") {
        Some(text) => text
            .parse::<u32>()
            .with_context(|| format!("Failed to parse iterations count: {text}"))?,
        None => DEFAULT_ITERATIONS,
    };
    let (least, most) = (
        ScramMechanism::MIN_ITERATIONS,
        ScramMechanism::MAX_ITERATIONS,
    );
    if !(least..=most).contains(&iterations) {
        bail!(
            "The 'iterations' value must be >= {least} and <= {most} for add-scram using {}; it is \
             {iterations}",
            mechanism.name()
        );
    }
    let password = parts.remove("password");
    let salted = parts.remove("saltedpassword");
    if let Some(unknown) = parts.keys().next() {
        bail!(
            "Unknown SCRAM configurations: {unknown}; there are name, password, saltedpassword, salt and \
             iterations"
        );
    }
    let (salt, salted_password) = match (password, salted, salt) {
        (Some(password), _, salt) => {
            let salt = salt.unwrap_or_else(|| rand::random::<[u8; 32]>().to_vec());
            let salted = mechanism.salted_password(password.as_bytes(), &salt, iterations);
            (salt, salted)
        }
        (None, Some(text), Some(salt)) => (salt, decoded("saltedpassword", text)?),
        (None, Some(_), None) => {
            bail!("You must supply 'salt' with 'saltedpassword' to add-scram")
        }
        (None, None, _) => {
            bail!("You must supply one of 'password' or 'saltedpassword' to add-scram")
        }
    };
    let keys = mechanism.keys(&salted_password);
    Ok(UserScramCredentialRecord {
        name: name.into(),
        mechanism: mechanism as i8,
        salt: salt.into(),
        stored_key: keys.stored_key.into(),
        server_key: keys.server_key.into(),
        iterations: iterations as i32,
        ..Default::default()
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(argument: &str) -> UserScramCredentialRecord {
        match parse(argument).unwrap() {
            MetadataRecord::UserScramCredential(record) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_password_and_its_salted_password_give_the_same_record() {
        let salt = [7u8; 16];
        let salted = ScramMechanism::Sha512.salted_password(b"secret", &salt, 8192);
        let salt = STANDARD.encode(salt);
        let plain = record(&format!(
            "SCRAM-SHA-512=[name=alice,iterations=8192,salt=\"{salt}\",password=secret]"
        ));
        let salted = record(&format!(
            "SCRAM-SHA-512=[name=alice,iterations=8192,salt={salt},saltedpassword={}]",
            STANDARD.encode(salted)
        ));
        assert_eq!(plain, salted);
        assert_eq!(
            (&*plain.name, plain.mechanism, plain.iterations),
            ("alice", 2, 8192)
        );
        assert_eq!(record("SCRAM-SHA-256=[name=b,password=x]").salt.len(), 32);
    }

    #[test]
    fn errors_do_not_contain_passwords() {
        for (argument, says) in [
            ("SCRAM-SHA-256", "no equals sign"),
            (
                "SCRAM-MD5=[name=a,password=hush]",
                "SCRAM-MD5 is not supported",
            ),
            ("SCRAM-SHA-256=name=a,password=hush", "must begin with ["),
            ("SCRAM-SHA-256=[password=hush]", "'name'"),
            (
                "SCRAM-SHA-256=[name=a]",
                "one of 'password' or 'saltedpassword'",
            ),
            ("SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==]", "'salt'"),
            (
                "SCRAM-SHA-256=[name=a,password=hush,iterations=1]",
                ">= 4096",
            ),
            (
                "SCRAM-SHA-256=[name=a,password=hush,x=1]",
                "Unknown SCRAM configurations: x",
            ),
        ] {
            let error = format!("{:#}", parse(argument).unwrap_err());
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
