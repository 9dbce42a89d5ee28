//! What every command of development stands on: the workspace's places, child processes, the toolchains of other languages,
//! and how checks are counted. Nothing in here is linked into the product.

pub mod process;
pub mod report;
pub mod toolchain;
pub mod workspace;
