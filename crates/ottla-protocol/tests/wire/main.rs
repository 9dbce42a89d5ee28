//! The tests of this crate, as a program of their own: beside the code, they would compile all
//! messages once more, which takes longer than all of these files.

mod allocations;
mod api_key;
mod client_session;
mod coordinator_record;
mod encoder;
mod header;
mod hostile;
mod metadata_record;
mod reader;
mod server_session;
mod tagged;
