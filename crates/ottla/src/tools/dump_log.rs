//! `dump-log`: Kafka's `kafka-dump-log.sh`.
//!
//! Reads the files of a partition, of Ottla's or of Kafka's making, without the log's own code, so that
//! a mistake there is not repeated here.

mod decoder;
mod indexes;
mod java_json;
pub(super) mod schema_json;
mod segment;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use decoder::Decoder;

/// Print the files of a partition: segments, indexes, snapshots.
#[derive(Args, Debug)]
pub struct DumpLogArgs {
    /// The files, separated by commas: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint.
    #[arg(long, value_name = "FILES")]
    files: String,
    /// Print the records' keys and values; a decoder implies it.
    #[arg(long)]
    print_data_log: bool,
    /// Print a line for each record, not only for each batch; --print-data-log implies it.
    #[arg(long)]
    deep_iteration: bool,
    /// Compare indexes with their segment and print only mismatches.
    #[arg(long)]
    verify_index_only: bool,
    /// Check indexes as a broker does when it starts.
    #[arg(long)]
    index_sanity_check: bool,
    /// Print only keys and values of records.
    #[arg(long)]
    skip_record_metadata: bool,
    /// Read at most this many bytes of a segment.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// The largest batch that is looked for.
    #[arg(long, value_name = "BYTES", hide = true)]
    max_message_size: Option<u64>,
    /// How values are printed: the name of one of Kafka's decoders.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "StringDecoder")]
    value_decoder_class: Option<String>,
    /// How keys are printed: the name of one of Kafka's decoders.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "StringDecoder")]
    key_decoder_class: Option<String>,
    /// The records are those of __consumer_offsets.
    #[arg(long)]
    offsets_decoder: bool,
    /// The records are those of __transaction_state.
    #[arg(long)]
    transaction_log_decoder: bool,
    /// The records are those of __cluster_metadata.
    #[arg(long)]
    cluster_metadata_decoder: bool,
    /// The records are those of __remote_log_metadata.
    #[arg(long)]
    remote_log_metadata_decoder: bool,
    /// The records are those of __share_group_state.
    #[arg(long)]
    share_group_state_decoder: bool,
}

/// What the flags say about printing segments.
struct SegmentOptions {
    is_deep: bool,
    prints_contents: bool,
    skips_metadata: bool,
    max_bytes: Option<u64>,
    decoder: Decoder,
}

pub fn run(args: DumpLogArgs) -> ExitCode {
    match dump(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
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

/// The offset in the name of a segment's file.
fn base_offset(file: &Path) -> anyhow::Result<i64> {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let number = name.split('.').next().unwrap_or_default();
    number.parse().map_err(|_| {
        anyhow::anyhow!(
            "{} is not named after an offset, as the files of a segment are",
            file.display()
        )
    })
}
