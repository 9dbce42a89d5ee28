//! `dump-log`: Kafka's `kafka-dump-log.sh`.
//!
//! Reads the files of a partition, written by Ottla or by Kafka, without using the log's own code,
//! so that a bug there is not repeated here.

mod arguments;
mod decoder;
mod indexes;
mod java_json;
pub(super) mod schema_json;
mod segment;

use std::path::PathBuf;
use std::process::ExitCode;

pub use arguments::DumpLogArgs;
use decoder::Decoder;
use segment::SegmentOptions;

use super::report_plainly;

pub fn run(args: DumpLogArgs) -> ExitCode {
    report_plainly(dump(&args))
}

fn dump(args: &DumpLogArgs) -> anyhow::Result<()> {
    let decoder = Decoder::new(args)?;
    let prints_contents = args.print_data_log
        || args.value_decoder_class.is_some()
        || args.key_decoder_class.is_some()
        || decoder.is_for_records();
    let options = SegmentOptions {
        is_deep: args.deep_iteration || prints_contents,
        prints_contents,
        skips_metadata: args.skip_record_metadata,
        max_bytes: args.max_bytes,
        decoder,
    };
    let mut complaints = Vec::new();
    for file in args.files.split(',') {
        let file = PathBuf::from(file);
        println!("Dumping {}", file.display());
        let name = file
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        match name.rsplit_once('.').map(|(_, suffix)| suffix) {
            Some("log" | "checkpoint") => segment::dump(&file, &options, &mut complaints)?,
            Some("index") => indexes::dump_offset_index(&file, args, &mut complaints)?,
            Some("timeindex") => indexes::dump_time_index(&file, args, &mut complaints)?,
            Some("txnindex") => indexes::dump_transaction_index(&file)?,
            Some("snapshot") => indexes::dump_producer_snapshot(&file)?,
            _ => eprintln!("Ignoring unknown file {}", file.display()),
        }
    }
    for complaint in complaints {
        eprintln!("{complaint}");
    }
    Ok(())
}
