//! The flags that the tools of all group types have.

use clap::Args;

/// What is done with which groups, and what is shown of them.
#[derive(Args, Debug)]
pub struct GroupArguments {
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
    #[arg(long, group = "action")]
    pub(super) delete: bool,
    /// Reset the offsets of groups without members; nothing is changed without --execute.
    #[arg(long, group = "action")]
    pub(super) reset_offsets: bool,
    /// Delete the offsets of a group for topics.
    #[arg(long, group = "action", requires = "group")]
    pub(super) delete_offsets: bool,
    /// A group; can be repeated where several groups are possible.
    #[arg(long, conflicts_with_all = ["all_groups", "list"])]
    pub(super) group: Vec<String>,
    /// All groups of the tool's type.
    #[arg(long)]
    pub(super) all_groups: bool,
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
    #[arg(long, conflicts_with = "execute")]
    pub(super) dry_run: bool,
    /// Make the changes.
    #[arg(long)]
    pub(super) execute: bool,
}

impl GroupArguments {
    /// The error if the flags do not fit together. `resets_several`: whether the offsets of several
    /// groups can be reset at a time.
    pub(super) fn check(&self, resets_several: bool) -> Result<(), &'static str> {
        let needs_groups = self.describe || self.delete || self.reset_offsets && resets_several;
        if needs_groups && self.group.is_empty() && !self.all_groups {
            return Err("give --group or --all-groups to select the groups");
        }
        match self.state.as_deref() {
            Some(states) if self.describe && !states.is_empty() => {
                Err("--state takes no value with --describe; select states with --list")
            }
            Some(_) if !self.list && !self.describe => {
                Err("--state goes with --list or --describe")
            }
            _ => Ok(()),
        }
    }
}
