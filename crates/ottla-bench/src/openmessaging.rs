//! The files of the OpenMessaging Benchmark (github.com/openmessaging/benchmark): its workload and driver files are read
//! as a scenario, and its result file can be written, so that its charts and what people know of it carry over.
//!
//! A workload becomes the text of a scenario, which goes the way of all others: it is shown, changed, recorded and
//! repeated like one that was written by hand. What a scenario cannot do is refused, or stands in its question.

mod files;
mod result;
mod translation;

pub use files::{Driver, Workload};
pub use result::{TestResult, file_name, test_results};
pub use translation::{bootstrap_servers, scenario_text};
