//! What a run sends, when it sends it, and how long that took: the parts of a measurement that know no broker.
//!
//! Everything that costs time is done before the clock starts: payloads are prepared, histograms have their memory.
//! What is called for each record allocates nothing and reads no clock unless it has to; `benches/workload.rs` says
//! what it costs.

pub mod keys;
pub mod latencies;
pub mod pacing;
pub mod percentiles;
pub mod random;
pub mod stamp;
pub mod tag;
pub mod values;
