//! Common foundation of all development commands: paths and test programs of the workspace, child
//! processes, toolchains of other languages, and the counting of checks. The product does not link
//! any of this.

pub mod process;
pub mod report;
pub mod test_programs;
pub mod toolchain;
pub mod workspace;
