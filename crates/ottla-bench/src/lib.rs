//! Workloads, load generators, histograms and reports.
//!
//! `workload` defines the records and their schedule, without knowing a broker; `drive` sends them
//! to a cluster with the native client. `load` is the low-cost generator of `ottla-load`. The rest
//! is `ottla bench`: `scenario` defines a measurement, `figures` the results, and `openmessaging`
//! reads and writes the files of another benchmark.

pub mod command;
pub mod drive;
pub mod figures;
pub mod load;
pub mod machine;
pub mod openmessaging;
pub mod report;
pub mod results;
pub mod run;
pub mod scenario;
pub mod search;
pub mod sizing;
pub mod statistics;
pub mod target;
pub mod workload;
