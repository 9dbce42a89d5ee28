//! The result of a check.

/// A violation: its place, and the way to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub place: String,
    pub text: String,
}

impl Complaint {
    pub(super) fn new(place: impl Into<String>, text: impl Into<String>) -> Complaint {
        Complaint {
            place: place.into(),
            text: text.into(),
        }
    }
}
