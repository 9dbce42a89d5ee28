//! Large frames that arrive in pieces.

use super::*;

fn received(network: &Network) -> usize {
    network.context.metrics.get(Metric::BytesReceived) as usize
}

#[tokio::test]
async fn a_peer_that_leaves_in_the_middle_of_a_large_frame_is_noticed() {
    let service = Arc::<Blind>::default();
    let (mut client, network) = connect(&service, &[]).await;
    let request = large_produce(7, 60_000);
    client.write_all(&request[..20_000]).await.unwrap();
    until(|| received(&network) == 20_000).await;
    client.write_all(&request[20_000..30_000]).await.unwrap();
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
