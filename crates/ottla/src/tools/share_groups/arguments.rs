//! The arguments of `share-groups`.

use clap::{ArgGroup, Args};

use crate::tools::admin_client::Brokers;

/// List and describe share groups, delete them, and reset or delete their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("scenario"))]
#[command(group = ArgGroup::new("aspect"))]
pub struct ShareGroupsArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
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
    /// Reset the offsets of a group without members; give --dry-run or --execute.
    #[arg(long, group = "action", requires = "scenario")]
    pub(super) reset_offsets: bool,
    /// Delete the offsets of a group for topics.
    #[arg(long, group = "action", requires_all = ["group", "topic"])]
    pub(super) delete_offsets: bool,
    /// A group; can be repeated with --describe and --delete.
    #[arg(long, conflicts_with_all = ["all_groups", "list"])]
    pub(super) group: Vec<String>,
    /// All share groups.
    #[arg(long)]
    pub(super) all_groups: bool,
    /// A topic, with --reset-offsets also some of its partitions as topic:0,1,2; can be repeated.
    #[arg(long, conflicts_with_all = ["list", "describe"])]
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
    /// With --describe: show the state. With --list: show states, and only groups in the given ones
    /// (Empty, Stable, Dead).
    #[arg(long, value_name = "STATES", num_args = 0..=1, default_missing_value = "", group = "aspect")]
    pub(super) state: Option<String>,
    /// With --describe: show more columns.
    #[arg(long, requires = "describe")]
    pub(super) verbose: bool,
    /// Show the changes without making them.
    #[arg(long, conflicts_with = "execute")]
    pub(super) dry_run: bool,
    /// Make the changes.
    #[arg(long)]
    pub(super) execute: bool,
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
