//! The arguments of `dump-log`.

use clap::Args;

/// Print the contents of a partition's files: segments, indexes, snapshots.
#[derive(Args, Debug)]
pub struct DumpLogArgs {
    /// The files, separated by commas: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint.
    #[arg(long, value_name = "FILES")]
    pub(super) files: String,
    /// Print the records' keys and values; a decoder implies it.
    #[arg(long)]
    pub(super) print_data_log: bool,
    /// Print a line for each record, not only for each batch; --print-data-log implies it.
    #[arg(long)]
    pub(super) deep_iteration: bool,
    /// Compare indexes with their segment and print only mismatches.
    #[arg(long)]
    pub(super) verify_index_only: bool,
    /// Check indexes as a broker does when it starts.
    #[arg(long)]
    pub(super) index_sanity_check: bool,
    /// Print only keys and values of records.
    #[arg(long)]
    pub(super) skip_record_metadata: bool,
    /// Read at most this many bytes of a segment.
    #[arg(long, value_name = "BYTES")]
    pub(super) max_bytes: Option<u64>,
    /// Maximum size of a batch.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub(super) max_message_size: Option<u64>,
    /// How values are printed: the name of one of Kafka's decoders.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "StringDecoder")]
    pub(super) value_decoder_class: Option<String>,
    /// How keys are printed: the name of one of Kafka's decoders.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "StringDecoder")]
    pub(super) key_decoder_class: Option<String>,
    /// Decode the records of __consumer_offsets.
    #[arg(long)]
    pub(super) offsets_decoder: bool,
    /// Decode the records of __transaction_state.
    #[arg(long)]
    pub(super) transaction_log_decoder: bool,
    /// Decode the records of __cluster_metadata.
    #[arg(long)]
    pub(super) cluster_metadata_decoder: bool,
    /// Decode the records of __remote_log_metadata.
    #[arg(long)]
    pub(super) remote_log_metadata_decoder: bool,
    /// Decode the records of __share_group_state.
    #[arg(long)]
    pub(super) share_group_state_decoder: bool,
}
