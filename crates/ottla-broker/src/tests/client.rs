//! A client with one connection that sends exactly what a test specifies.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use ottla_protocol::messages::{RequestHeader, ResponseHeader};
use ottla_protocol::{ApiMessage, ApiRequest, Encoder, Message, Reader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

pub(crate) struct Client {
    pub(super) stream: TcpStream,
    next_correlation_id: i32,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Client {
        Client {
            stream: TcpStream::connect(address)
                .await
                .expect("the broker listens"),
            next_correlation_id: 1,
        }
    }

    /// Connects from this address.
    pub(super) async fn connect_from(from: IpAddr, address: SocketAddr) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind((from, 0).into())
            .expect("an address of this machine");
        Client {
            stream: socket.connect(address).await.expect("the broker listens"),
            next_correlation_id: 1,
        }
    }

    /// Sends a request and returns its response.
    pub(crate) async fn ask<R: ApiRequest>(&mut self, version: i16, request: &R) -> R::Response {
        let correlation_id = self.send(version, request).await;
        self.receive::<R>(version, correlation_id).await
    }

    /// Sends a request. Returns its correlation ID.
    pub(super) async fn send<R: ApiRequest>(&mut self, version: i16, request: &R) -> i32 {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let frame = frame(version, request, correlation_id);
        self.stream
            .write_all(&frame)
            .await
            .expect("the broker reads");
        correlation_id
    }

    /// Receives the next response, which must have this correlation ID.
    pub(super) async fn receive<R: ApiRequest>(
        &mut self,
        version: i16,
        correlation_id: i32,
    ) -> R::Response {
        let frame = self
            .receive_frame()
            .await
            .expect("the connection stays open");
        let mut reader = Reader::new(frame);
        let header_version = R::API_KEY.response_header_version(version);
        let header = ResponseHeader::decode(&mut reader, header_version).expect("a header");
        assert_eq!(
            header.correlation_id, correlation_id,
            "answers keep their order"
        );
        let response = R::Response::decode(&mut reader, version).expect("a response");
        assert_eq!(reader.remaining(), 0, "the response is read to its end");
        response
    }

    /// The next frame. `None` if the connection has ended.
    pub(super) async fn receive_frame(&mut self) -> Option<Bytes> {
        let length = self.stream.read_u32().await.ok()?;
        let mut frame = BytesMut::zeroed(length as usize);
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.freeze())
    }

    /// Whether the broker closes the connection without a response.
    pub(super) async fn is_closed(&mut self) -> bool {
        self.receive_frame().await.is_none()
    }
}

/// A request with header and length.
pub(super) fn frame<R: ApiMessage>(version: i16, request: &R, correlation_id: i32) -> Bytes {
    let header = RequestHeader {
        request_api_key: R::API_KEY.code(),
        request_api_version: version,
        correlation_id,
        client_id: Some("test".into()),
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    let header_version = R::API_KEY.request_header_version(version);
    header
        .encode(&mut encoder, header_version)
        .expect("a header");
    request.encode(&mut encoder, version).expect("a request");
    let body = encoder.finish().into_bytes();
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(&body);
    frame.freeze()
}
