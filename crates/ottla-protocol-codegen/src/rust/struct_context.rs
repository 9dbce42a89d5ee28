//! The context of generated code: a struct of a message, and the versions in which it occurs.

use crate::schema::{Field, Message, Struct, Versions};

/// The context that the printers of a struct need.
pub(super) struct StructContext<'a> {
    pub message: &'a Message,
    pub shape: &'a Struct,
}

impl StructContext<'_> {
    /// The expression that tells whether the version is flexible, for a field that may be exempt.
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

    /// Whether the struct has a tag section in any version.
    pub(super) fn has_tags(&self) -> bool {
        self.flexible_expression() != "false"
    }
}

/// A condition on `v` that is true within `versions`, given that `v` is within `parent`; `None` if
/// it is always true.
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
