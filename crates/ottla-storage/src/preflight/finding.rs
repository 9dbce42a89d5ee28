//! A finding, and the facts about the node.

use std::fmt;

use ottla_types::named_enum;

named_enum! {
    /// The severity of a finding; refusals first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Severity {
        /// Prevents a take-over until it is changed.
        Refuses => "refuses",
        /// A take-over is possible, but something will behave differently.
        Warns => "warns",
        /// For information.
        Notes => "notes",
    }
}

/// The subject of findings about key stores, trust stores and certificates.
pub const TLS: &str = "TLS";

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    /// The subject in a word or two, constant for a kind of finding.
    pub subject: &'static str,
    /// The line of a file, a directory, or a position in the metadata log.
    pub place: String,
    pub what: String,
    /// The change that resolves the finding, if there is one.
    pub change: Option<String>,
    /// The value of `ottla.accept.unserved` that accepts it.
    pub accept: Option<&'static str>,
}

/// The finding as one sentence.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        match &self.change {
            Some(change) => write!(f, "; {change}"),
            None => Ok(()),
        }
    }
}

/// Facts about the node, as far as they could be read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    pub node_id: Option<i32>,
    pub cluster_id: Option<String>,
    /// In Kafka's notation: `4.3-IV0`.
    pub metadata_version: Option<String>,
    pub topics: usize,
    pub partitions: usize,
    /// Size of all logs.
    pub size_bytes: u64,
    pub directories: Vec<String>,
    /// Whether every directory was stopped cleanly; `None` if none is formatted.
    pub stopped_cleanly: Option<bool>,
    /// Bytes that a start must read for recovery.
    pub recovery_bytes: u64,
}
