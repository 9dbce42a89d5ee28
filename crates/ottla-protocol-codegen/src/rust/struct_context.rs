//! Where code is generated for: a struct of a message, and the versions in which something of it is there.

use crate::schema::{Field, Message, Struct, Versions};

/// What the printers of one struct need to know about where it stands.
pub(super) struct StructContext<'a> {
    pub message: &'a Message,
    pub shape: &'a Struct,
}

impl StructContext<'_> {
    /// The expression that says whether the version is flexible, for a field that may be exempt.
    pub fn flexible(&self, field: &Field) -> &'static str {
        if field.inflexible {
            "false"
        } else {
            self.flexible_expression()
        }
    }

    pub(super) fn flexible_expression(&self) -> &'static str {
        let flexible = self.message.flexible.intersect(self.shape.versions);
        if flexible.is_none() {
            "false"
        } else if flexible == self.shape.versions {
            "true"
        } else {
            "flexible"
        }
    }

    /// Whether a tag section can occur at all.
    pub(super) fn has_tags(&self) -> bool {
        self.flexible_expression() != "false"
    }
}

/// A test of `v` that is true within `versions`, knowing that `v` is within `parent`; `None` if it
/// always is.
pub(super) fn condition(versions: Versions, parent: Versions) -> Option<String> {
    let (lowest, highest) = (versions.lowest()?, versions.highest()?);
    let from_start = Some(lowest) <= parent.lowest();
    let to_end = Some(highest) >= parent.highest();
    match (from_start, to_end) {
        (true, true) => None,
        (true, false) => Some(format!("v <= {highest}")),
        (false, true) => Some(format!("v >= {lowest}")),
        (false, false) if lowest == highest => Some(format!("v == {lowest}")),
        (false, false) => Some(format!("({lowest}..={highest}).contains(&v)")),
    }
}
