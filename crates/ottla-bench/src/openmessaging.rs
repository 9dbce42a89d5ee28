//! The files of the OpenMessaging Benchmark (github.com/openmessaging/benchmark): its workload and driver files are read
//! as a scenario, and its result file can be written, so that its charts and what people know of it carry over.
//!
//! A workload is converted to the text of a scenario, which is shown, changed, recorded and repeated like one
//! written by hand. What a scenario cannot express is refused, or noted in its question.

mod files;
mod result;
mod translation;

pub use files::{Driver, Workload};
pub use result::{TestResult, file_name, test_results};
pub use translation::{bootstrap_servers, scenario_text};
