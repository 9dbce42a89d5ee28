mod inbox;
#[cfg(test)]
mod inbox_tests;
mod primitives;
