//! What requests to Google Cloud Storage have besides what `object_store` sends.
//!
//! - The CRC-32C of each object and of each part (`x-goog-hash`). The store compares it with what has
//!   arrived, and refuses an upload that was damaged on its way (`BadDigest`). Over TLS, that is
//!   between the ends of TLS: in a proxy, or in the memory of this machine after the checksum.
//! - No `Authorization` without credentials. `object_store` sends one with an empty token in uploads
//!   and deletions, which is not a request without credentials.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, Digest};
use hyper::body::Body;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
    ReqwestConnector,
};

const AUTHORIZATION: &str = "authorization";
const HASH: &str = "x-goog-hash";

/// Connects as `object_store` does by itself.
#[derive(Debug)]
pub struct GcsConnector;

impl HttpConnector for GcsConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(GcsRequests(client)))
    }
}

#[derive(Debug)]
struct GcsRequests(HttpClient);

#[async_trait]
impl HttpService for GcsRequests {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        complete(&mut request);
        self.0.execute(request).await
    }
}

fn complete(request: &mut HttpRequest) {
    let bearer = request.headers().get(AUTHORIZATION);
    if bearer.is_some_and(|value| value.as_bytes().trim_ascii() == b"Bearer") {
        request.headers_mut().remove(AUTHORIZATION);
    }
    if request.method().as_str() != "PUT" {
        return;
    }
    let checksum = BASE64_STANDARD.encode(checksum(request.body()).to_be_bytes());
    if let Ok(value) = format!("crc32c={checksum}").parse() {
        request.headers_mut().insert(HASH, value);
    }
}

fn checksum(body: &HttpRequestBody) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    // A clone shares the bytes. They are in memory, so none is waited for.
    let mut body = body.clone();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        if let Some(bytes) = frame.data_ref() {
            digest.update(bytes);
        }
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use object_store::PutPayload;

    use super::*;

    fn request(method: &str, token: &str, body: HttpRequestBody) -> HttpRequest {
        let mut request = HttpRequest::new(body);
        *request.method_mut() = method.parse().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(AUTHORIZATION, bearer);
        complete(&mut request);
        request
    }

    #[test]
    fn an_upload_has_the_checksum_of_its_pieces() {
        // The check value of CRC-32C is e3069283.
        let pieces = ["1234", "", "56789"].map(|it| Bytes::from_static(it.as_bytes()));
        let whole = Bytes::from_static(b"123456789");
        let pieces: PutPayload = pieces.into_iter().collect();
        for body in [HttpRequestBody::from(pieces), whole.into()] {
            let request = request("PUT", "any", body);
            assert_eq!(request.headers()[HASH], "crc32c=4waSgw==");
            assert_eq!(request.body().content_length(), 9, "it is still sent");
            assert_eq!(request.headers()[AUTHORIZATION], "Bearer any");
        }
        let end = request(
            "POST",
            "any",
            "<CompleteMultipartUpload/>".to_owned().into(),
        );
        assert!(!end.headers().contains_key(HASH));
    }

    #[test]
    fn a_request_without_credentials_has_no_authorization() {
        let request = request("DELETE", "", HttpRequestBody::empty());
        assert!(!request.headers().contains_key(AUTHORIZATION));
    }
}
