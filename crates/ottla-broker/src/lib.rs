//! Sockets, dispatch, one file per API, and the shell that drives the pure crates.
mod partition;
