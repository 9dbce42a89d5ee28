//! A subscription by the names of topics.

use std::sync::Arc;

use regex::Regex;

use crate::metadata::Metadata;

/// Topics chosen by their names.
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// The metadata that was last looked through.
    pub(super) seen: Option<Arc<Metadata>>,
}
