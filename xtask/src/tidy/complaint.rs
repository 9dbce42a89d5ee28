//! What a check finds.

/// One thing that is not as it should be: where, and what to do about it.
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
