//! Workloads, load generators, histograms and reports.
//!
//! `workload` knows what is sent and when, and no broker; `drive` puts it on a cluster with the native client. `load` is
//! the bare generator behind `ottla-load`. The rest is `ottla bench`: `scenario` says what is measured, `figures` what
//! comes out, and `openmessaging` is how the files of another benchmark go in and out.

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
