//! One thing that was found, and what the node is.

use std::fmt;

/// How much a finding weighs; what stands in the way first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// A take-over is not possible until it is changed.
    Refuses,
    /// A take-over is possible, and something will not be as it was.
    Warns,
    /// Good to know.
    Notes,
}

impl Severity {
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Refuses => "refuses",
            Severity::Warns => "warns",
            Severity::Notes => "notes",
        }
    }
}

/// What Kafka enforced or served and Ottla does not yet, and what `ottla.accept.unserved` can let pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unserved {
    Settings,
}

impl Unserved {
    /// As the setting names it.
    pub const fn name(self) -> &'static str {
        match self {
            Unserved::Settings => "settings",
        }
    }

    pub(super) const fn subject(self) -> &'static str {
        match self {
            Unserved::Settings => "dynamic settings",
        }
    }
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    /// What it is about, in a word or two, always the same for the same kind of finding.
    pub subject: &'static str,
    /// The line of a file, a directory, or where in the metadata log.
    pub place: String,
    pub what: String,
    /// What to change, where something can be.
    pub change: Option<String>,
    /// With what it can be let pass.
    pub accept: Option<Unserved>,
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

/// What the node is, as far as it could be read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    pub node_id: Option<i32>,
    pub cluster_id: Option<String>,
    /// As Kafka writes it: `4.3-IV0`.
    pub metadata_version: Option<String>,
    pub topics: usize,
    pub partitions: usize,
    /// Of all logs.
    pub size_bytes: u64,
    pub directories: Vec<String>,
    /// Whether every directory was stopped cleanly; `None` where none is formatted.
    pub stopped_cleanly: Option<bool>,
    /// How much a start would have to read to recover.
    pub recovery_bytes: u64,
}
