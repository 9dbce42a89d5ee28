//! The simulated network: delays, short writes, resets, cut links.

use ottla_sync::net::{self, ListenOptions, TcpListener, TcpStream};
use ottla_sync::simulation::{LinkFaults, Network};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Runs a future on a host and waits for it.
fn on<T: Send + 'static>(
    host: &Host,
    future: impl Future<Output = T> + Send + 'static,
) -> thread::JoinHandle<T> {
    host.spawn("main", move || task::Handle::current().block_on(future))
}

/// A host that echoes what it receives, one connection after the other.
fn echo(name: &str) -> Host {
    let host = Host::new(name);
    let serve = async {
        let address = "0.0.0.0:9092".parse().unwrap();
        let options = ListenOptions {
            receive_buffer_bytes: None,
            backlog: 5,
        };
        let listener = net::bind(address, options).unwrap().listen().unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            task::spawn(async move {
                let (mut read, mut write) = stream.into_split();
                let mut buffer = [0; 100];
                while let Ok(count @ 1..) = read.read(&mut buffer).await {
                    if write.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    };
    drop(on(&host, serve));
    host
}

async fn connect() -> std::io::Result<TcpStream> {
    loop {
        match TcpStream::connect("server:9092").await {
            // It does not listen yet.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            connected => return connected,
        }
    }
}

async fn is_echoed(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    let mut buffer = vec![0; bytes.len()];
    stream.read_exact(&mut buffer).await?;
    assert_eq!(buffer, bytes);
    Ok(())
}

#[test]
fn bytes_come_in_their_order_through_short_reads_and_small_windows() {
    for seed in 0..30 {
        let body = || {
            Network::of_this_simulation().set_faults(LinkFaults {
                short_one_in: 2,
                window_bytes: 70,
                ..LinkFaults::default()
            });
            let _server = echo("server");
            let client = on(&Host::new("client"), async {
                let stream = connect().await.unwrap();
                let sent: Vec<u8> = (0..5_000).map(|n: u32| (n % 251) as u8).collect();
                let expected = sent.clone();
                let (mut read, mut write) = stream.into_split();
                let writing = task::spawn(async move {
                    write.write_all(&sent).await.unwrap();
                });
                let mut received = Vec::new();
                read.read_to_end(&mut received).await.unwrap();
                writing.await.unwrap();
                assert_eq!(received, expected);
            });
            client.join().unwrap();
        };
        run(Config::new(seed), body).unwrap();
    }
}

#[test]
fn a_killed_host_closes_its_connections_and_one_without_power_does_not() {
    for is_power_lost in [false, true] {
        let body = move || {
            let server = echo("server");
            let client = Host::new("client");
            let connected = on(&client, async {
                let mut stream = connect().await.unwrap();
                is_echoed(&mut stream, b"a").await.unwrap();
                stream
            });
            let mut stream = connected.join().unwrap();
            match is_power_lost {
                true => server.lose_power(),
                false => server.kill(),
            }
            let ended = on(&client, async move {
                let read = async { stream.read(&mut [0]).await };
                let heard = time::timeout(Duration::from_secs(100), read).await.is_ok();
                let again = TcpStream::connect("server:9092");
                let answered = time::timeout(Duration::from_secs(100), again).await.is_ok();
                (heard, answered, stream)
            });
            let (heard, answered, mut stream) = ended.join().unwrap();
            assert_eq!((heard, answered), (!is_power_lost, !is_power_lost));
            // The next host of the machine does not know the connection.
            let _server = echo("server");
            let refused = on(&client, async move {
                let mut new = connect().await.unwrap();
                is_echoed(&mut new, b"b").await.unwrap();
                is_echoed(&mut stream, b"c").await.is_err()
            });
            assert!(refused.join().unwrap());
        };
        run(Config::new(1), body).unwrap();
    }
}

#[test]
fn a_cut_link_holds_back_what_is_sent_until_it_is_mended() {
    let body = || {
        let _server = echo("server");
        let client = on(&Host::new("client"), async {
            let mut stream = connect().await.unwrap();
            let network = Network::of_this_simulation();
            network.cut("server", "client");
            let began = time::now();
            let limit = Duration::from_secs(7);
            let echoed = time::timeout(limit, is_echoed(&mut stream, b"abc")).await;
            assert!(echoed.is_err());
            let connecting = TcpStream::connect("server:9092");
            assert!(time::timeout(limit, connecting).await.is_err());
            network.heal();
            let mut buffer = [0; 3];
            stream.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"abc");
            assert!(time::now() - began < Duration::from_secs(15));
            network.reset("client", "server");
            assert!(stream.read(&mut buffer).await.is_err());
            connect().await.unwrap();
        });
        client.join().unwrap();
    };
    run(Config::new(1), body).unwrap();
}

#[test]
fn a_port_is_bound_once_and_free_again() {
    let body = || {
        let host = Host::new("server");
        let bound = on(&host, async {
            let first = TcpListener::bind("server:1").await.unwrap();
            assert!(TcpListener::bind("server:1").await.is_err());
            drop(first);
            let own = TcpListener::bind("localhost:0").await.unwrap();
            assert_ne!(own.local_addr().unwrap().port(), 0);
            TcpListener::bind("server:1").await.unwrap();
            TcpStream::connect("nobody:1").await.is_err()
        });
        assert!(bound.join().unwrap());
    };
    run(Config::new(1), body).unwrap();
}

/// A file that shrinks while it is sent ends where it ends at the time of sending.
#[test]
fn a_file_is_read_when_it_is_sent() {
    use ottla_sync::fs::{Disk, File};
    let body = || {
        let disk = Disk::new(1, "disk");
        let host = Host::new("server").with_disk(&disk);
        let sent = on(&host, async {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .open("/f")
                .unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"before", 0).unwrap();
            let listener = TcpListener::bind("server:1").await.unwrap();
            let mut reader = TcpStream::connect("server:1").await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"after!", 0).unwrap();
            assert_eq!(net::send_file(&stream, &file, 1, 100).unwrap(), 5);
            assert_eq!(net::send_file(&stream, &file, 6, 100).unwrap(), 0);
            drop(stream);
            let mut text = String::new();
            reader.read_to_string(&mut text).await.unwrap();
            text
        });
        assert_eq!(sent.join().unwrap(), "fter!");
    };
    run(Config::new(1), body).unwrap();
}

#[test]
fn outside_of_a_simulation_sockets_are_those_of_the_system() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let slices = [std::io::IoSlice::new(b"abc")];
        assert_eq!(net::send_vectored(&accepted, &slices, false).unwrap(), 3);
        let mut buffer = [0; 3];
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"abc");
    });
}

#[test]
fn ticks_are_drawn_from_the_hosts_clock() {
    let body = || {
        let host = Host::new("server");
        let ticks = on(&host, async {
            let mut interval = time::interval(Duration::from_secs(1));
            let began = time::now();
            for _ in 0..3 {
                interval.tick().await;
            }
            time::sleep(Duration::from_millis(2_500)).await;
            interval.tick().await;
            interval.tick().await;
            time::now() - began
        });
        let passed = ticks.join().unwrap();
        assert!((Duration::from_secs(5)..Duration::from_millis(5_001)).contains(&passed));
    };
    run(Config::new(1), body).unwrap();
}
