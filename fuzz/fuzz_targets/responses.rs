//! Any response, and the messages inside bytes fields (consumer protocol, control records), at any
//! version.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_protocol::decode_api_versions_response;

fuzz_target!(|input: &[u8]| {
    ottla_fuzz::check_message_of(ottla_fuzz::RESPONSES, input);
    let _ = decode_api_versions_response(&Bytes::copy_from_slice(input), 4);
});
