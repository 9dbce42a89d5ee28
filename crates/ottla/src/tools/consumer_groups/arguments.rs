//! The arguments of `consumer-groups`.

use clap::{ArgGroup, Args};

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
    /// How long each operation may take.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    pub(super) timeout: u64,
    /// List the groups.
    #[arg(long, group = "action")]
    pub(super) list: bool,
    /// Show groups: their offsets and lag, their --members or their --state.
    #[arg(long, group = "action")]
    pub(super) describe: bool,
    /// Delete groups without members.
    #[arg(long, group = "action", conflicts_with = "topic")]
    pub(super) delete: bool,
    /// Reset the offsets of groups without members; nothing is changed without --execute.
    #[arg(long, group = "action")]
    pub(super) reset_offsets: bool,
    /// Delete the offsets of a group for topics.
    #[arg(long, group = "action", requires_all = ["group", "topic"])]
    pub(super) delete_offsets: bool,
    /// Check whether a regular expression of topics is valid.
    #[arg(long, value_name = "REGEX", group = "action")]
    pub(super) validate_regex: Option<String>,
    /// A group; can be repeated.
    #[arg(long, conflicts_with_all = ["all_groups", "list"])]
    pub(super) group: Vec<String>,
    /// All groups.
    #[arg(long)]
    pub(super) all_groups: bool,
    /// A topic, or some of its partitions as topic:0,1,2; can be repeated.
    #[arg(long)]
    pub(super) topic: Vec<String>,
    /// All topics for which the group has offsets.
    #[arg(long)]
    pub(super) all_topics: bool,
    /// With --describe: show offsets, as by default.
    #[arg(long, requires = "describe", group = "aspect")]
    pub(super) offsets: bool,
    /// With --describe: show the members.
    #[arg(long, requires = "describe", group = "aspect")]
    pub(super) members: bool,
    /// With --describe: show the state. With --list: show states, and only groups in the given
    /// ones.
    #[arg(long, value_name = "STATES", num_args = 0..=1, default_missing_value = "", group = "aspect")]
    pub(super) state: Option<String>,
    /// With --list: show types, and only groups of the given ones (classic, consumer).
    #[arg(long = "type", value_name = "TYPES", num_args = 0..=1, default_missing_value = "")]
    pub(super) kind: Option<String>,
    /// With --describe: show more columns.
    #[arg(long, requires = "describe")]
    pub(super) verbose: bool,
    /// Show the changes without making them.
    #[arg(long, conflicts_with = "execute")]
    pub(super) dry_run: bool,
    /// Make the changes.
    #[arg(long)]
    pub(super) execute: bool,
    /// Print the new offsets as CSV.
    #[arg(long)]
    pub(super) export: bool,
    #[command(flatten)]
    pub(super) scenario: ResetScenario,
}
