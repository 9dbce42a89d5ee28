//! The clients that generate a history: processes that send and poll, inside and outside
//! transactions, and a final reader of all logs. They run on a real cluster and on a simulated one.

mod reader;
mod scene;
mod worker;

pub use reader::read_all;
pub use scene::{PARTITIONS, Scene, TOPICS};
pub use worker::work;
