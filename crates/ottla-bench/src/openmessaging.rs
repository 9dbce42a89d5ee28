//! File formats of the OpenMessaging Benchmark (github.com/openmessaging/benchmark): workload and
//! driver files are read as a scenario, and result files can be written, so that its charts can be
//! used.
//!
//! A workload is converted to the text of a scenario, which is shown, changed, recorded and
//! repeated like a hand-written one. Settings that a scenario cannot express are rejected, or noted
//! in its question.

mod files;
mod result;
mod translation;

pub use files::{Driver, Workload};
pub use result::{TestResult, file_name, test_results};
pub use translation::{bootstrap_servers, scenario_text};
