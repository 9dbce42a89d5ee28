//! The clients whose history is made: processes that send and poll, in transactions and outside of them, and a reader of
//! all logs at the end. They run on a real cluster and on a simulated one.

mod reader;
mod scene;
mod worker;

pub use reader::read_all;
pub use scene::{PARTITIONS, Scene, TOPICS};
pub use worker::work;
