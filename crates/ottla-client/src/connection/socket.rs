//! A socket to a broker with the configured buffer sizes.

use std::io;

use ottla_sync::net::{self, TcpStream};

use crate::config::ClientConfig;

pub(super) async fn connect(address: &str, config: &ClientConfig) -> io::Result<TcpStream> {
    let (send, receive) = (config.send_buffer_bytes, config.receive_buffer_bytes);
    if (send, receive) == (None, None) {
        return TcpStream::connect(address).await;
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in net::lookup_host(address).await? {
        match net::connect_with_buffers(address, send, receive).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;

    /// Linux allocates twice the requested size, because half of it is for its own bookkeeping.
    #[tokio::test]
    async fn buffers_have_the_configured_sizes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut config = ClientConfig::default();
        let left = connect(&address, &config).await.unwrap();
        (config.send_buffer_bytes, config.receive_buffer_bytes) = (Some(20_000), Some(30_000));
        let set = connect(&address, &config).await.unwrap();
        assert_eq!(sockopt::socket_send_buffer_size(&set).unwrap(), 40_000);
        assert_eq!(sockopt::socket_recv_buffer_size(&set).unwrap(), 60_000);
        assert!(sockopt::socket_recv_buffer_size(&left).unwrap() > 60_000);
        let [free] = ottla_testkit::lease_ports().unwrap();
        let nobody = format!("127.0.0.1:{free}");
        assert!(connect(&nobody, &config).await.is_err());
    }
}
