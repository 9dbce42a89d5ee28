//! The arguments of `streams-groups`.

use clap::{ArgGroup, Args};

use crate::tools::admin_client::Brokers;
use crate::tools::offset_reset::ResetScenario;

/// List and describe streams groups, delete them with their internal topics, and reset their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("aspect"))]
pub struct StreamsGroupsArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    /// How long each operation may take.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    pub(super) timeout: u64,
    /// List the groups.
    #[arg(long, group = "action", conflicts_with_all = ["group", "input_topic"])]
    pub(super) list: bool,
    /// Show groups: their offsets and lag, their --members or their --state.
    #[arg(long, group = "action", conflicts_with = "input_topic")]
    pub(super) describe: bool,
    /// Delete groups without members.
    #[arg(long, group = "action", conflicts_with_all = ["input_topic", "all_input_topics"])]
    pub(super) delete: bool,
    /// Reset the offsets of groups without members: --dry-run shows the changes, --execute makes
    /// them.
    #[arg(long, group = "action")]
    pub(super) reset_offsets: bool,
    /// Delete the offsets of a group for its input topics.
    #[arg(long, group = "action", requires = "group")]
    pub(super) delete_offsets: bool,
    /// A group; can be repeated.
    #[arg(long, conflicts_with = "all_groups")]
    pub(super) group: Vec<String>,
    /// All streams groups.
    #[arg(long)]
    pub(super) all_groups: bool,
    /// An input topic, or some of its partitions as topic:0,1,2; can be repeated.
    #[arg(long, value_name = "TOPIC")]
    pub(super) input_topic: Vec<String>,
    /// All input topics of the group's topology.
    #[arg(long)]
    pub(super) all_input_topics: bool,
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
    /// With --describe: show more columns.
    #[arg(long, requires = "describe")]
    pub(super) verbose: bool,
    /// Show the changes without making them.
    #[arg(long, conflicts_with = "execute", requires = "reset_offsets")]
    pub(super) dry_run: bool,
    /// Make the changes.
    #[arg(long, requires = "reset_offsets")]
    pub(super) execute: bool,
    /// Print the new offsets as CSV.
    #[arg(long)]
    pub(super) export: bool,
    /// With --reset-offsets --execute: delete this internal topic of the group; can be repeated.
    #[arg(long, value_name = "TOPIC")]
    pub(super) delete_internal_topic: Vec<String>,
    /// With --delete, or with --reset-offsets --execute: delete all internal topics of the group.
    #[arg(long)]
    pub(super) delete_all_internal_topics: bool,
    #[command(flatten)]
    pub(super) scenario: ResetScenario,
}
