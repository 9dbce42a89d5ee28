//! Writes made-up messages and batches as seeds into `corpus/TARGET`, from which the fuzzer starts.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use ottla_fuzz::{REQUESTS, RESPONSES, input_prefix, messages};
use ottla_protocol::sample::{Sampler, Style};
use ottla_records::{Compression, CompressionType, RecordBatchBuilder};
use ottla_types::Timestamp;

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
