//! The arguments of `streams-groups`.

use clap::{ArgGroup, Args};

use crate::tools::admin_client::Brokers;
use crate::tools::group_arguments::GroupArguments;
use crate::tools::offset_reset::ResetScenario;

/// List and describe streams groups, delete them with their internal topics, and reset their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("aspect"))]
pub struct StreamsGroupsArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    #[command(flatten)]
    pub(super) common: GroupArguments,
    /// An input topic, or some of its partitions as topic:0,1,2; can be repeated.
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["list", "describe", "delete"])]
    pub(super) input_topic: Vec<String>,
    /// All input topics of the group's topology.
    #[arg(long, conflicts_with = "delete")]
    pub(super) all_input_topics: bool,
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
