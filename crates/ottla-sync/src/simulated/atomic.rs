//! Atomics with a switch point before each operation; sequentially consistent for every requested
//! ordering.

pub use std::sync::atomic::{Ordering, fence};

use crate::simulation::trace::Op;
use crate::simulation::world;

macro_rules! atomic {
    ($name:ident, $inner:ty, $value:ty) => {
        #[derive(Default, Debug)]
        pub struct $name($inner);

        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                world::switch_point(Op::Atomic);
                self.0.load(order)
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                world::switch_point(Op::Atomic);
                self.0.store(value, order);
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                world::switch_point(Op::Atomic);
                self.0.swap(value, order)
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                world::switch_point(Op::Atomic);
                self.0.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

macro_rules! fetch {
    ($name:ident, $value:ty: $($operation:ident)*) => {
        impl $name {
            $(
                #[track_caller]
                pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    world::switch_point(Op::Atomic);
                    self.0.$operation(value, order)
                }
            )*
        }
    };
}

macro_rules! number {
    ($name:ident, $inner:ident, $value:ty) => {
        atomic!($name, std::sync::atomic::$inner, $value);
        fetch!($name, $value: fetch_add fetch_sub fetch_max fetch_min fetch_and fetch_or fetch_xor);
    };
}

number!(AtomicU8, AtomicU8, u8);
number!(AtomicU16, AtomicU16, u16);
number!(AtomicU32, AtomicU32, u32);
number!(AtomicU64, AtomicU64, u64);
number!(AtomicUsize, AtomicUsize, usize);
number!(AtomicI32, AtomicI32, i32);
number!(AtomicI64, AtomicI64, i64);
atomic!(AtomicBool, std::sync::atomic::AtomicBool, bool);
fetch!(AtomicBool, bool: fetch_and fetch_or fetch_xor);
