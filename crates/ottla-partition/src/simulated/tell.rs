//! Output of a single run.

/// Prints the steps when a single seed is repeated.
macro_rules! tell {
    ($($what:tt)*) => {
        if $crate::simulated::tell::number("OTTLA_SEED").is_some() {
            println!($($what)*);
        }
    };
}

/// A numeric setting of the test from the environment.
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
