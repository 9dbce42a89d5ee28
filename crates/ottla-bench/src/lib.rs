//! Workloads, load generators, histograms and reports.

pub mod workload;

pub mod load;
