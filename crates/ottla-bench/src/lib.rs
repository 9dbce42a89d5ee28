//! Workloads, load generators, histograms and reports.
