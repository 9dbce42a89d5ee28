//! Kafka's built-in assignors.

mod heterogeneous;
mod homogeneous;
mod load_levels;
mod range;
mod simple;
mod uniform;

pub use range::RangeAssignor;
pub use simple::SimpleAssignor;
pub use uniform::UniformAssignor;

#[cfg(test)]
mod tests;
