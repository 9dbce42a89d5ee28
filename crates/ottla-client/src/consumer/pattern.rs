//! A subscription with a regular expression.

use std::sync::Arc;

use regex::Regex;

use crate::metadata::Metadata;

/// The topics that match an expression.
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// The metadata that was last matched.
    pub(super) seen: Option<Arc<Metadata>>,
}
