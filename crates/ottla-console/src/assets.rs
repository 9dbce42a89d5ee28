//! The files of the page. They are compressed at build time and kept compressed; every path that is
//! not a file is an address within the page, for which the browser gets `index.html`.

use std::io::Read;

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

struct File {
    name: &'static str,
    content_type: &'static str,
    /// In quotation marks.
    etag: &'static str,
    gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

const INDEX: &str = "index.html";

/// Answers every GET outside the API.
pub(crate) async fn serve(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().trim_start_matches('/');
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.or_else(|| FILES.iter().find(|file| file.name == INDEX));
    match file {
        Some(file) => answer(file, &headers),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn answer(file: &File, headers: &HeaderMap) -> Response {
    let fixed = [
        (header::ETAG, HeaderValue::from_static(file.etag)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if lists(headers, header::IF_NONE_MATCH, file.etag) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    let kind = [(header::CONTENT_TYPE, file.content_type)];
    if lists(headers, header::ACCEPT_ENCODING, "gzip") {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (fixed, kind, encoding, file.gzip).into_response();
    }
    let mut plain = Vec::new();
    match GzDecoder::new(file.gzip).read_to_end(&mut plain) {
        Ok(_) => (fixed, kind, plain).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Whether a header with a list of values has this one, unless with `q=0`.
fn lists(headers: &HeaderMap, name: header::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name);
    let values = values.iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| {
        let (item, weight) = item.split_once(';').unwrap_or((item, ""));
        let item = item.trim().trim_start_matches("W/");
        item == wanted && !matches!(weight.replace(' ', "").as_str(), "q=0" | "q=0.0")
    })
}
