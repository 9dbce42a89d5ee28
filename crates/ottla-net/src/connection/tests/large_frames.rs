//! Large frames that arrive in pieces. A connection waits for their rest.

use socket2::SockRef;

use super::*;
use crate::connection::reading::REST_WITHIN;

const BODY: usize = 60_000;
const PIECE: usize = 10_000;

fn received(network: &Network) -> usize {
    network.context.metrics.get(Metric::BytesReceived) as usize
}

/// A connection that has read the length and one piece of a request, the rest of the request, and a
/// time before the connection began to wait for it.
async fn begin(service: &Arc<Blind>) -> (ClientStream, Arc<Network>, Vec<u8>, Instant) {
    let (mut client, network) = connect(service, &[]).await;
    client.set_nodelay(true).unwrap();
    let mut request = large_produce(7, BODY);
    let rest = request.split_off(4 + PIECE);
    // Otherwise the first read could return more than the length.
    client.write_all(&request[..4]).await.unwrap();
    until(|| received(&network) == 4).await;
    let began = ottla_sync::time::now();
    client.write_all(&request[4..]).await.unwrap();
    until(|| received(&network) == 4 + PIECE).await;
    (client, network, rest, began)
}

#[tokio::test]
async fn the_rest_of_a_large_frame_is_read_when_it_is_complete() {
    let service = Arc::<Blind>::default();
    let (mut client, network, rest, began) = begin(&service).await;
    client.write_all(&rest[..PIECE]).await.unwrap();
    ottla_sync::time::sleep(REST_WITHIN / 10).await;
    let is_read = received(&network) > 4 + PIECE;
    // On a machine that is too busy, this shows nothing.
    let is_early = ottla_sync::time::elapsed(began) < REST_WITHIN;
    assert!(!is_read || !is_early, "a piece was read alone");
    // A slow peer is neither idle nor stalled.
    until(|| received(&network) == 4 + 2 * PIECE).await;
    client.write_all(&rest[PIECE..]).await.unwrap();
    receive(&mut client, 7).await;
    assert_eq!(received(&network), 4 + PIECE + rest.len());
    assert_eq!(service.requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_peer_that_leaves_in_the_middle_of_a_large_frame_is_noticed() {
    let service = Arc::<Blind>::default();
    let (mut client, network, rest, _) = begin(&service).await;
    client.write_all(&rest[..PIECE]).await.unwrap();
    drop(client);
    until(|| network.connections.count() == 0).await;
    assert_eq!(service.requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn requests_of_all_sizes_arrive_whole_in_pieces_of_any_size() {
    const BODIES: [usize; 7] = [20_000, 10, 65_436, 300_000, 16_384, 0, 100_000];
    let service = Arc::<Blind>::default();
    let (mut client, network) = connect(&service, &[]).await;
    client.set_nodelay(true).unwrap();
    let bodies = (0..).zip(BODIES);
    let requests: Vec<u8> = bodies
        .flat_map(|(id, body)| large_produce(id, body))
        .collect();
    let mut sent = 0;
    for piece in [100, 1_000, 40_000, 65_483].into_iter().cycle() {
        let end = requests.len().min(sent + piece);
        client.write_all(&requests[sent..end]).await.unwrap();
        sent = end;
        if sent == requests.len() {
            break;
        }
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    }
    for id in 0..BODIES.len() as i32 {
        receive(&mut client, id).await;
    }
    assert_eq!(received(&network), requests.len());
}

async fn soon_readable(stream: &mut Stream) -> bool {
    let soon = Duration::from_millis(50);
    let readable = ottla_sync::time::timeout(soon, stream.readable());
    readable.await.is_ok()
}

async fn until_readable(stream: &mut Stream) {
    let readable = ottla_sync::time::timeout(PATIENCE, stream.readable());
    readable.await.expect("in time").expect("the runtime runs");
}

#[tokio::test]
async fn a_wait_for_many_bytes_ends_with_them_or_with_the_stream() {
    const AWAITED: usize = 20_000;
    let socket = ottla_sync::net::TcpListener::bind("127.0.0.1:0").await;
    let socket = socket.unwrap();
    for is_reset in [false, true] {
        let address = socket.local_addr().unwrap();
        let mut client = ClientStream::connect(address).await.unwrap();
        client.set_nodelay(true).unwrap();
        let mut stream = Stream::Plain(socket.accept().await.unwrap().0);
        // A read that does not fill it shows the runtime that the socket is empty.
        let mut buffer = vec![0; 2 * AWAITED];
        assert!(stream.await_bytes(AWAITED));

        client.write_all(&vec![0; AWAITED - 1]).await.unwrap();
        assert!(!soon_readable(&mut stream).await, "one is missing");
        client.write_all(&[0]).await.unwrap();
        until_readable(&mut stream).await;
        assert_eq!(stream.read(&mut buffer).await.unwrap(), AWAITED);

        client.write_all(&[0; 100]).await.unwrap();
        assert!(!soon_readable(&mut stream).await);
        assert!(stream.await_bytes(1));
        until_readable(&mut stream).await;
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 100);

        assert!(stream.await_bytes(AWAITED));
        client.write_all(&[0; 100]).await.unwrap();
        assert!(!soon_readable(&mut stream).await);
        if is_reset {
            let at_once = Some(Duration::ZERO);
            SockRef::from(&client).set_linger(at_once).unwrap();
        }
        drop(client);
        until_readable(&mut stream).await;
    }
}
