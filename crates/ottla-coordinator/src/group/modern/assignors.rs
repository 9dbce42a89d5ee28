//! The assignors that Kafka comes with.

mod heterogeneous;
mod homogeneous;
mod load_levels;
mod range;
mod uniform;

pub use range::RangeAssignor;
pub use uniform::UniformAssignor;

#[cfg(test)]
mod tests;
