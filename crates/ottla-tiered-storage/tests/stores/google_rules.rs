//! What Google documents of the requests of its XML API, as far as a store of segments sends them:
//! objects and parts with their checksums, reads and deletions. fake-gcs-server has no uploads in
//! parts, and checks neither credentials nor checksums.
//!
//! See cloud.google.com/storage/docs/xml-api: `put-object-upload`, `post-object-multipart`,
//! `put-object-multipart`, `post-object-complete`, `delete-multipart`, `reference-headers`,
//! `reference-status`. The rules of uploads in parts that are those of S3 too are in the server itself.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_testkit::fault_server::{Request, Rules};

/// Of a part and of an object that is uploaded in one request.
const MAX_BYTES: usize = 5 << 30;
const PARTS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// `token` is the only access token that is known; without one, everybody may do everything.
pub fn rules(token: Option<&'static str>) -> Rules {
    Arc::new(move |request: &Request<'_>| refusal(request, token))
}

/// The status and the code of the error that Google answers; `None` if the request keeps all rules.
fn refusal(request: &Request<'_>, token: Option<&str>) -> Option<(u16, &'static str)> {
    let expected = token.map(|token| format!("Bearer {token}"));
    if request.header("authorization") != expected.as_deref() {
        return Some((401, "AuthenticationRequired"));
    }
    if request.header("host").is_none() || request.has_header_of("x-amz-") {
        return Some((400, "InvalidArgument"));
    }
    if !request.target.starts_with("/bucket/") {
        return Some((404, "NoSuchBucket"));
    }
    let query = request
        .target
        .split_once('?')
        .map_or("", |(_, query)| query);
    let parameters: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let mut names: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let is_known = match request.method {
        "GET" | "HEAD" => names.is_empty(),
        "PUT" => names.is_empty() || names == ["partNumber", "uploadId"],
        "POST" => names == ["uploads"] || names == ["uploadId"],
        "DELETE" => names.is_empty() || names == ["uploadId"],
        _ => return Some((405, "MethodNotAllowed")),
    };
    let number = parameters.iter().find(|(name, _)| *name == "partNumber");
    let is_number = |text: &str| text.parse::<u32>().is_ok_and(|it| PARTS.contains(&it));
    if !is_known || number.is_some_and(|(_, text)| !is_number(text)) {
        return Some((400, "InvalidArgument"));
    }
    let has_body = request.method == "PUT" || (request.method == "POST" && names == ["uploadId"]);
    if matches!(request.method, "PUT" | "POST") && request.header("content-length").is_none() {
        return Some((411, "MissingContentLength"));
    }
    if !has_body && !request.body.is_empty() {
        return Some((400, "InvalidArgument"));
    }
    if request.body.len() > MAX_BYTES {
        return Some((400, "EntityTooLarge"));
    }
    match request
        .header("x-goog-hash")
        .map(|hash| is_hash_of(hash, request.body))
    {
        Some(None) => Some((400, "InvalidDigest")),
        Some(Some(false)) => Some((400, "BadDigest")),
        Some(Some(true)) | None => None,
    }
}

/// Whether the bytes have the CRC-32C in the header; `None` if the header has none.
fn is_hash_of(header: &str, bytes: &[u8]) -> Option<bool> {
    let mut hashes = header.split(',').map(str::trim);
    let given = hashes.find_map(|hash| hash.strip_prefix("crc32c="))?;
    let given = BASE64_STANDARD.decode(given).ok()?;
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    Some(given == crc.to_be_bytes())
}

#[test]
fn requests_that_break_a_rule_are_refused() {
    let refused = |method: &str, target: &str, headers: &str, body: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        let request = Request {
            method,
            target,
            head: &head,
            body: body.as_bytes(),
        };
        refusal(&request, Some("token")).map(|(_, code)| code)
    };
    const LOGIN: &str = "Authorization: Bearer token\r\n";
    let with = |headers: &str| format!("{LOGIN}Content-Length: 9\r\n{headers}");
    let (object, nine) = ("/bucket/object", "123456789");
    let part = "/bucket/object?partNumber=1&uploadId=u";
    for headers in [
        with(""),
        with("x-goog-hash: crc32c=4waSgw==\r\n"),
        with("X-Goog-Hash: md5=JfnnlDI7RTiF9RgfG2JNCw==, crc32c=4waSgw==\r\n"),
    ] {
        assert_eq!(refused("PUT", object, &headers, nine), None);
        assert_eq!(refused("PUT", part, &headers, nine), None);
    }
    let sized = with("");
    let wrong_hash = with("x-goog-hash: crc32c=4waSgg==\r\n");
    let no_hash = with("x-goog-hash: sha1=4waSgg==\r\n");
    let of_s3 = with("x-amz-acl: private\r\n");
    let (none, first) = ("", "/bucket/object?uploads=");
    let zeroth = "/bucket/object?partNumber=0&uploadId=u";
    let too_many = "/bucket/object?partNumber=10001&uploadId=u";
    for (method, target, headers, body, code) in [
        ("GET", object, none, none, "AuthenticationRequired"),
        (
            "GET",
            object,
            "Authorization: Bearer\r\n",
            none,
            "AuthenticationRequired",
        ),
        ("GET", "/other/object", LOGIN, none, "NoSuchBucket"),
        ("PATCH", object, LOGIN, none, "MethodNotAllowed"),
        ("GET", first, LOGIN, none, "InvalidArgument"),
        ("PUT", object, LOGIN, nine, "MissingContentLength"),
        ("PUT", zeroth, LOGIN, nine, "InvalidArgument"),
        ("PUT", too_many, LOGIN, nine, "InvalidArgument"),
        (
            "PUT",
            "/bucket/object?partNumber=1",
            LOGIN,
            nine,
            "InvalidArgument",
        ),
        ("POST", first, LOGIN, none, "MissingContentLength"),
        ("POST", first, &*sized, nine, "InvalidArgument"),
        ("PUT", part, &*wrong_hash, nine, "BadDigest"),
        ("PUT", part, &*no_hash, nine, "InvalidDigest"),
        ("PUT", part, &*of_s3, nine, "InvalidArgument"),
    ] {
        let found = refused(method, target, headers, body);
        assert_eq!(found, Some(code), "{method} {target} {headers}");
    }
}
