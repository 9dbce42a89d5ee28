//! The arguments of `consumer-groups`.

use clap::{ArgGroup, Args};

use crate::tools::group_arguments::GroupArguments;
use crate::tools::offset_reset::ResetScenario;

/// List and describe consumer groups, delete them, and reset their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("aspect"))]
pub struct ConsumerGroupsArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(
        long,
        value_name = "SERVERS",
        required_unless_present = "validate_regex"
    )]
    pub(super) bootstrap_server: Option<String>,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    pub(super) command_config: Option<String>,
    #[command(flatten)]
    pub(super) common: GroupArguments,
    /// Check whether a regular expression of topics is valid.
    #[arg(long, value_name = "REGEX", group = "action")]
    pub(super) validate_regex: Option<String>,
    /// A topic, or some of its partitions as topic:0,1,2; can be repeated.
    #[arg(long, conflicts_with = "delete")]
    pub(super) topic: Vec<String>,
    /// All topics for which the group has offsets.
    #[arg(long)]
    pub(super) all_topics: bool,
    /// With --list: show types, and only groups of the given ones (classic, consumer).
    #[arg(long = "type", value_name = "TYPES", num_args = 0..=1, default_missing_value = "")]
    pub(super) kind: Option<String>,
    /// Print the new offsets as CSV.
    #[arg(long)]
    pub(super) export: bool,
    #[command(flatten)]
    pub(super) scenario: ResetScenario,
}
