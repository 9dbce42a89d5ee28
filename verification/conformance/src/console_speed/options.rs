//! The measurements and their sizes.

#[derive(clap::Args)]
pub struct Options {
    /// Only the parts with one of these in their names: pages, tables, tail, search, tabs, memory, binary, assets.
    #[arg(value_name = "PART")]
    pub parts: Vec<String>,
    /// MB of records that are searched.
    #[arg(long, value_name = "MB", default_value_t = 2000)]
    pub search_mb: u64,
    /// Partitions of the cluster whose pages are opened.
    #[arg(long, default_value_t = 10_000)]
    pub partitions: usize,
    /// Tabs that are open while records are produced.
    #[arg(long, default_value_t = 1000)]
    pub tabs: usize,
    /// How often each comparison is repeated.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Whether all processors are used, instead of two.
    #[arg(long)]
    pub all_processors: bool,
}
