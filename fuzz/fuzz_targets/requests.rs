//! Any request, or a request header, at any version. A frame is also read as a connection would read it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_protocol::{Reader, decode_request_header};

fuzz_target!(|input: &[u8]| {
    ottla_fuzz::check_message_of(ottla_fuzz::REQUESTS, input);
    let _ = decode_request_header(&mut Reader::new(Bytes::copy_from_slice(input)));
});
