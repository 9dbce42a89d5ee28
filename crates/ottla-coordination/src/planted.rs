//! Defects planted by simulations, to show that their checkers find them. Without the feature
//! `planted-bugs` there are none: `has` is constantly false.

/// The defects.
#[cfg_attr(not(feature = "planted-bugs"), expect(dead_code))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Processes the result of an append in two steps.
    AnswerForAppendsInTwoSteps,
    /// The same for an append that was refused.
    RefuseAppendsInTwoSteps,
    /// Appends transaction records while the ISR is below `min.insync.replicas`.
    AppendUnderMinIsr,
    /// Checks the leadership of a share partition before taking the lock that its closing takes.
    LookBeforeTheLock,
}

ottla_types::plantable_bugs!(feature = "planted-bugs");
