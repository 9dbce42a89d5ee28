//! Atomically swapped pointers, with a switch point before each load and store.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;

use crate::simulation::trace::Op;
use crate::simulation::world;

macro_rules! swap {
    ($name:ident, $value:ty) => {
        #[derive(Debug)]
        pub struct $name<T>(arc_swap::$name<T>);

        impl<T> $name<T> {
            pub fn new(value: $value) -> Self {
                Self(arc_swap::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self) -> Guard<$value> {
                world::switch_point(Op::Swap);
                self.0.load()
            }

            #[track_caller]
            pub fn load_full(&self) -> $value {
                world::switch_point(Op::Swap);
                self.0.load_full()
            }

            #[track_caller]
            pub fn store(&self, value: $value) {
                world::switch_point(Op::Swap);
                self.0.store(value);
            }

            #[track_caller]
            pub fn swap(&self, value: $value) -> $value {
                world::switch_point(Op::Swap);
                self.0.swap(value)
            }

            /// `update` is called again if another thread has stored a value in between.
            #[track_caller]
            pub fn rcu<R: Into<$value>>(&self, update: impl FnMut(&$value) -> R) -> $value {
                world::switch_point(Op::Swap);
                self.0.rcu(update)
            }
        }

        impl<T> Deref for $name<T> {
            type Target = arc_swap::$name<T>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

swap!(ArcSwap, Arc<T>);
swap!(ArcSwapOption, Option<Arc<T>>);

impl<T> ArcSwap<T> {
    pub fn from_pointee(value: T) -> Self {
        Self::new(Arc::new(value))
    }
}

impl<T> ArcSwapOption<T> {
    pub fn from_pointee(value: impl Into<Option<T>>) -> Self {
        Self::new(value.into().map(Arc::new))
    }

    pub fn empty() -> Self {
        Self::new(None)
    }
}

impl<T: Default> Default for ArcSwap<T> {
    fn default() -> Self {
        Self::from_pointee(T::default())
    }
}

impl<T> Default for ArcSwapOption<T> {
    fn default() -> Self {
        Self::empty()
    }
}
