//! Generates the Rust code of every schema file into the build's output folder; `src/generated.rs`
//! includes it.

use std::fs;
use std::path::{Path, PathBuf};

use ottla_protocol_codegen::schema::Message;
use ottla_protocol_codegen::{notation, rust};

const FILES: [&str; 7] = [
    "messages",
    "metadata_records",
    "group_records",
    "transaction_records",
    "share_records",
    "raft_records",
    "storage_records",
];

fn main() {
    println!("cargo::rerun-if-changed=schema");
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let schemas: Vec<(&str, Vec<Message>)> = FILES
        .iter()
        .map(|file| (*file, read_schema(file)))
        .collect();
    for (file, messages) in &schemas {
        let mut code = rust::generate(messages);
        code.push_str(&match *file {
            "metadata_records" => {
                rust::generate_record_enum(messages, "metadata_records", "MetadataRecord")
            }
            "group_records" => {
                rust::generate_coordinator_enum(messages, "GroupRecordKey", "GroupRecordValue")
            }
            "transaction_records" => rust::generate_coordinator_enum(
                messages,
                "TransactionRecordKey",
                "TransactionRecordValue",
            ),
            "share_records" => {
                rust::generate_coordinator_enum(messages, "ShareRecordKey", "ShareRecordValue")
            }
            "storage_records" => {
                rust::generate_record_enum(messages, "metadata_records", "RemoteLogRecord")
            }
            _ => String::new(),
        });
        write(&out_dir, file, &code);
        write(
            &out_dir,
            &format!("{file}_samples"),
            &rust::generate_samples(messages),
        );
        if *file == "messages" {
            write(&out_dir, "api_keys", &rust::generate_api_keys(messages));
        }
    }
    let lists: Vec<(&str, &[Message])> = schemas
        .iter()
        .map(|(file, messages)| (*file, messages.as_slice()))
        .collect();
    write(&out_dir, "list", &rust::generate_list(&lists));
}

fn read_schema(file: &str) -> Vec<Message> {
    let path = Path::new("schema").join(format!("{file}.schema"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; make it with `cargo xtask codegen`",
            path.display()
        )
    });
    notation::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(out_dir: &Path, file: &str, code: &str) {
    let path = out_dir.join(format!("{file}.rs"));
    fs::write(&path, code).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
