//! Workloads, load generators, histograms and reports.

pub mod load;
