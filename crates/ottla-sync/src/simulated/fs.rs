//! Files.
#[derive(Clone)]
pub struct Disk;
