//! Bugs that simulations plant in a crate, to show that their checkers find them.

/// Lets simulations plant the bugs of the enum `Bug`. The condition has the form of a `cfg`
/// predicate; where it is false, `has` is constantly false. A build with optimisations refuses the
/// feature `planted-bugs`.
#[macro_export]
macro_rules! plantable_bugs {
    ($($condition:tt)+) => {
        #[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
        compile_error!(
            "planted-bugs are for simulations: no build with optimisations may have them"
        );

        #[cfg(not($($condition)+))]
        pub(crate) const fn has(_: Bug) -> bool {
            false
        }

        #[cfg($($condition)+)]
        pub(crate) use in_simulations::has;
        #[cfg($($condition)+)]
        pub use in_simulations::plant;

        #[cfg($($condition)+)]
        mod in_simulations {
            use std::cell::Cell;

            use super::Bug;

            thread_local! {
                static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
            }

            pub(crate) fn has(bug: Bug) -> bool {
                PLANTED.get() == Some(bug)
            }

            /// Plants a bug on this thread and replaces the previous one.
            pub fn plant(bug: Option<Bug>) {
                PLANTED.set(bug);
            }
        }
    };
}
