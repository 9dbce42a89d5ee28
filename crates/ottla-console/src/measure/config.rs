//! Where a console finds the results of `ottla bench`, and how it runs it.

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct MeasureConfig {
    /// The `ottla` binary.
    pub program: PathBuf,
    /// The directory with the results, which is the output directory of runs.
    pub dir: PathBuf,
    /// The properties file of the clients, as for the console itself.
    pub command_config: Option<PathBuf>,
}
