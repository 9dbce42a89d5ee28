//! What a single run prints.

/// Prints what happens, if one seed is run again.
macro_rules! tell {
    ($($what:tt)*) => {
        if $crate::simulated::tell::number("OTTLA_SEED").is_some() {
            println!($($what)*);
        }
    };
}

/// A setting of the test's, from the environment.
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
