//! Bugs that simulations plant to show that their checkers detect them. Without the feature
//! `planted-bugs`, and outside of this crate's tests, `has` always returns false.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Every remote segment counts as one of the log's history.
    IgnoreLineage,
    /// Segments beyond the last stable offset are copied.
    CopyUncommitted,
    /// Local segments may be deleted as soon as their upload starts.
    CountBegunUploads,
    /// A segment is uploaded before its record is written.
    UploadBeforeAnnouncing,
    /// The last record of a deletion is written without deleting the objects.
    KeepObjects,
    /// The last record of a deletion is written although the store failed.
    FinishFailedDeletions,
    /// Segments expire without moving the log start offset first.
    ExpireWithoutMovingStart,
    /// A deletion that failed is not tried again.
    ForgetBegunDeletions,
    /// Local segments are deleted by their age alone.
    IgnoreRemoteEnd,
    /// A new leader continues after its own highest offset instead of that in remote storage.
    CopyFromLocalEnd,
}

ottla_types::plantable_bugs!(any(test, feature = "planted-bugs"));
