//! Writes made-up messages and batches as seeds into `corpus/TARGET`, from which the fuzzer starts.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use ottla_fuzz::{REQUESTS, RESPONSES, input_prefix, messages};
use ottla_protocol::sample::{Sampler, Style};
use ottla_records::{Compression, CompressionType, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp};

fn main() -> std::io::Result<()> {
    for message in messages() {
        for version in message.versions.clone() {
            for (index, style) in [Style::Full, Style::Mixed].into_iter().enumerate() {
                let sampler = Sampler::new(version as u64, style);
                let (bytes, _) = (message.sample)(sampler, version).expect("a sample can be written");
                let name = format!("{}-{version}-{index}", message.name);
                seed_message(message.kind, message.name, &name, version, bytes)?;
            }
        }
    }
    for codec in 0..5 {
        let codec = CompressionType::from_id(codec).expect("Kafka has five");
        let mut builder = RecordBatchBuilder::new(Compression::from(codec));
        for index in 0..20u8 {
            let value = vec![b'v'; usize::from(index) * 3];
            builder.append(Timestamp(i64::from(index)), Some(&[index]), Some(&value), &[]);
        }
        let batch = builder.build().to_bytes();
        write("record_batches", &format!("{codec:?}"), &batch)?;
        write("legacy_messages", &format!("{codec:?}"), &batch)?;
    }
    seed_files()?;
    seed_logins()?;
    seed_stores()?;
    // A key set, and a token of an issuer whose key it does not have; an unsigned token.
    let keys = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let claims = "eyJzdWIiOiJhIiwiZXhwIjo0MDAwMDAwMDAwfQ";
    write("oauth_tokens", "signed", format!("{keys}\neyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.{claims}.AAAA").as_bytes())?;
    write("oauth_tokens", "unsigned", format!("\neyJhbGciOiJub25lIn0.{claims}.").as_bytes())?;
    for magic in [0u8, 1] {
        let mut message = vec![0, 0, 0, 0, magic, 0];
        message.extend_from_slice(if magic == 1 { &[0; 8] } else { &[] });
        message.extend_from_slice(b"\0\0\0\x03key\0\0\0\x05value");
        let mut set = 0i64.to_be_bytes().to_vec();
        set.extend_from_slice(&(message.len() as i32).to_be_bytes());
        set.extend_from_slice(&message);
        write("legacy_messages", &format!("magic-{magic}"), &set)?;
    }
    Ok(())
}

/// The files of a log directory, as the targets take them apart.
fn seed_files() -> std::io::Result<()> {
    let id = "ReN1cU6aRdeOk4bZDgPh_g";
    let quorum_state = format!(
        "{{\"leaderId\":1,\"leaderEpoch\":5,\"votedId\":1,\"votedDirectoryId\":\"{id}\",\"data_version\":1}}"
    );
    let checkpoints = [
        "0\n2\nfirst 0 5\nsecond 11 7\n".to_owned(),
        format!("version=1\ncluster.id={id}\nnode.id=1\ndirectory.id={id}\n"),
        format!("version: 0\ntopic_id: {id}"),
        "0\n2\n0 0\n3 12\n".to_owned(),
        "{\"version\":0,\"brokerEpoch\":5}".to_owned(),
        quorum_state,
    ];
    for (which, text) in checkpoints.iter().enumerate() {
        let input = [&[which as u8], text.as_bytes()].concat();
        write("checkpoint_files", &which.to_string(), &input)?;
    }

    let mut segment = Vec::new();
    for base_offset in 0..6 {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(1_000 + base_offset), Some(b"k"), Some(b"value"), &[]);
        let mut batch = builder.build();
        batch.header.base_offset = Offset(base_offset);
        segment.extend_from_slice(&batch.to_bytes());
    }
    let length = segment.len() as u32 / 6;
    let index = [3u32.to_be_bytes(), (3 * length).to_be_bytes()].concat();
    let time_index = [&1_003i64.to_be_bytes()[..], &3u32.to_be_bytes()].concat();
    let epochs = b"0\n1\n0 0\n";
    for flags in 0..4 {
        let head = [flags, 2, 0, index.len() as u8, time_index.len() as u8, 0, 0, epochs.len() as u8];
        let input = [&head[..], &index, &time_index, epochs, &segment].concat();
        write("log_files", &flags.to_string(), &input)?;
    }

    let properties = "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n\
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n\
        log.dirs=/a,\\\n  /b\nlog.retention.hours : 168\n# comment\n! another\nk\\ e\\u0079 value\n";
    write("server_properties", "node", properties.as_bytes())
}

/// The messages of each mechanism, of both ends, JAAS entries, and what begins a TLS handshake.
fn seed_logins() -> std::io::Result<()> {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let property = format!("{module} required username=\"node\" password='n' user_a=\"\\\"\"; // end");
    let file = format!("KafkaServer {{ {property}\n}};\nb.KafkaServer {{\n/* none */ {module} optional x=y;\n}};");
    let messages = [
        ("plain", "\0user\0password"),
        ("scram-first", "n,,n=user,r=abc"),
        ("scram-token", "n,a=user,n=user,r=abc,tokenauth=true"),
        ("scram-challenge", "r=abcdef,s=AAAAAAAAAAAAAAAAAAAAAA==,i=4096"),
        ("scram-final", "c=biws,r=abcdef,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("oauthbearer", "n,a=user,\x01auth=Bearer abc.def.ghi\x01key=value\x01\x01"),
        ("jaas-property", &property),
        ("jaas-file", &file),
    ];
    messages.into_iter().try_for_each(|(name, message)| write("logins", name, message.as_bytes()))?;

    // A handshake of PLAIN, SCRAM-SHA-256 or OAUTHBEARER in version 1, or of PLAIN in version 0; then tokens.
    let (plain, scram, oauthbearer, token) = (8, 18, 38, 9);
    let final_message = "c=biws,r=abcdef,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let exchanges: [(&str, &[(u8, &str)]); 4] = [
        ("plain", &[(0, ""), (plain, ""), (token, "\0alice\0password")]),
        ("plain-0", &[(3, ""), (4, "\0alice\0password")]),
        ("scram", &[(scram, ""), (token, "n,,n=alice,r=abc"), (token, final_message)]),
        ("oauthbearer", &[(oauthbearer, ""), (token, "n,,\x01auth=Bearer a.b.c\x01\x01"), (token, "\x01")]),
    ];
    exchanges.into_iter().try_for_each(|(name, requests)| {
        let mut input = Vec::new();
        for (kind, message) in requests {
            input.extend([*kind, message.len() as u8]);
            input.extend_from_slice(message.as_bytes());
        }
        write("login_exchanges", name, &input)
    })?;

    // The first messages of clients of OpenSSL, in pieces of any length.
    let hellos: [(&str, &[u8]); 2] =
        [("tls12", include_bytes!("../client_hello_tls12.bin")), ("tls13", include_bytes!("../client_hello_tls13.bin"))];
    hellos.into_iter().try_for_each(|(name, hello)| write("tls_handshakes", name, &[&[255][..], hello].concat()))
}

/// The key stores that `ottla-tls` tests with, and the certificates in them.
fn seed_stores() -> std::io::Result<()> {
    for name in ["key.jks", "trust.jks"] {
        let bytes = fs::read(Path::new("../crates/ottla-tls/tests/stores").join(name))?;
        write("java_key_stores", name, &bytes)?;
        let store = ottla_tls::jks::read(&bytes, None).expect("a key store");
        let trusted: Vec<Vec<u8>> = store.trusted.into_iter().map(|(_, der)| der).collect();
        let chains = store.keys.into_iter().map(|entry| entry.chain);
        let mut input = Vec::new();
        for der in chains.chain([trusted]).flatten() {
            input.extend_from_slice(&(der.len() as u16).to_be_bytes());
            input.extend_from_slice(&der);
        }
        write("certificates", name, &input)?;
    }
    Ok(())
}

fn seed_message(kind: &str, schema: &str, name: &str, version: i16, bytes: Bytes) -> std::io::Result<()> {
    for (target, kinds) in [("requests", REQUESTS), ("responses", RESPONSES)] {
        if let Some(prefix) = input_prefix(kinds, schema, version) {
            write(target, name, &[&prefix[..], &bytes].concat())?;
        }
    }
    match kind {
        // The frame: its version, the record type (tried out, since the name does not say it), the version.
        "metadata" => {
            for record_type in 0..30 {
                let frame = [1, record_type, version as u8];
                write("metadata_records", &format!("{name}-{record_type}"), &[&frame[..], &bytes].concat())?;
            }
        }
        "coordinator_key" | "coordinator_value" => {
            for record_type in 0..22u8 {
                let input = match kind {
                    "coordinator_key" => {
                        [&[bytes.len() as u8 + 2, 0, record_type][..], &bytes].concat()
                    }
                    _ => [&[14, 0, record_type, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 0, 0, 0, 0, version as u8][..], &bytes].concat(),
                };
                write("coordinator_records", &format!("{name}-{record_type}"), &input)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn write(target: &str, name: &str, input: &[u8]) -> std::io::Result<()> {
    let folder = Path::new("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), input)
}
