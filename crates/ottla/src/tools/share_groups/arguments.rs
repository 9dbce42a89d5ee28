//! The arguments of `share-groups`.

use clap::{ArgGroup, Args};

use crate::tools::admin_client::Brokers;
use crate::tools::group_arguments::GroupArguments;

/// List and describe share groups, delete them, and reset or delete their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("scenario"))]
#[command(group = ArgGroup::new("aspect"))]
pub struct ShareGroupsArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    #[command(flatten)]
    pub(super) common: GroupArguments,
    /// A topic, with --reset-offsets also some of its partitions as topic:0,1,2; can be repeated.
    #[arg(long, conflicts_with_all = ["list", "describe", "delete"])]
    pub(super) topic: Vec<String>,
    /// All topics for which the group has offsets.
    #[arg(long)]
    pub(super) all_topics: bool,
    /// To the first record at or after a time: YYYY-MM-DDThh:mm:ss.sss.
    #[arg(long, value_name = "TIME", group = "scenario")]
    pub(super) to_datetime: Option<String>,
    /// To the first record.
    #[arg(long, group = "scenario")]
    pub(super) to_earliest: bool,
    /// After the last record.
    #[arg(long, group = "scenario")]
    pub(super) to_latest: bool,
}
