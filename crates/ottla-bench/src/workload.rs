//! The parts of a measurement that do not involve a broker: records, their schedule, and latencies.
//!
//! Everything expensive is done before the clock starts: payloads are prepared, histograms
//! allocated. The per-record code does not allocate and reads the clock only when necessary;
//! `benches/workload.rs` measures its cost.

pub mod keys;
pub mod latencies;
pub mod pacing;
pub mod percentiles;
pub mod random;
pub mod stamp;
pub mod tag;
pub mod values;
