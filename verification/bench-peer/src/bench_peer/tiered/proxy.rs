//! A proxy before an HTTP server on this machine that delays each response, and notes when requests
//! begin and end. It reads no HTTP: a request begins with the first bytes of a client after a
//! response, which holds without pipelining.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// One request: when its first bytes came, and when the first bytes of its response went.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    began: Instant,
    answered: Instant,
}

type Exchanges = Arc<Mutex<Vec<Exchange>>>;

/// Its threads end with their connections; the accepting thread ends with the process.
pub struct DelayingProxy {
    port: u16,
    exchanges: Exchanges,
}

impl DelayingProxy {
    pub fn start(server: u16, delay: Duration) -> Result<DelayingProxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let exchanges = Exchanges::default();
        let noted = exchanges.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client whose connection fails tries again.
                let _ = serve(client, server, delay, &noted);
            }
        });
        Ok(DelayingProxy { port, exchanges })
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.exchanges.lock().expect("no holder panics").clear();
    }

    /// The longest sequence of requests up to an instant, each of which began after the response to
    /// the previous one.
    pub fn round_trips(&self, until: Instant) -> usize {
        let exchanges = self.exchanges.lock().expect("no holder panics");
        let answered = exchanges.iter().filter(|it| it.answered <= until);
        longest_sequence(answered.copied().collect())
    }
}

fn longest_sequence(mut exchanges: Vec<Exchange>) -> usize {
    exchanges.sort_by_key(|it| it.began);
    let mut lengths: Vec<usize> = Vec::new();
    for (index, exchange) in exchanges.iter().enumerate() {
        let before = exchanges[..index].iter().zip(&lengths);
        let before = before.filter(|(earlier, _)| earlier.answered <= exchange.began);
        lengths.push(before.map(|(_, length)| *length).max().unwrap_or(0) + 1);
    }
    lengths.into_iter().max().unwrap_or(0)
}

/// Starts the two threads of a connection.
fn serve(client: TcpStream, server: u16, delay: Duration, exchanges: &Exchanges) -> Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    // When the request began that has no response yet.
    let open = Arc::new(Mutex::new(None::<Instant>));
    let noting = open.clone();
    let (to_server, from_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        forward(from_client, to_server, || {
            let mut open = noting.lock().expect("no holder panics");
            open.get_or_insert_with(Instant::now);
        });
    });
    let exchanges = exchanges.clone();
    thread::spawn(move || {
        forward(server, client, || {
            let began = *open.lock().expect("no holder panics");
            let Some(began) = began else {
                return;
            };
            thread::sleep((began + delay).saturating_duration_since(Instant::now()));
            let answered = Instant::now();
            let mut exchanges = exchanges.lock().expect("no holder panics");
            exchanges.push(Exchange { began, answered });
            *open.lock().expect("no holder panics") = None;
        });
    });
    Ok(())
}

/// Copies until either side ends. `arrived` runs between receiving and sending bytes.
fn forward(mut from: TcpStream, mut to: TcpStream, mut arrived: impl FnMut()) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(size) = from.read(&mut buffer) {
        if size == 0 {
            break;
        }
        arrived();
        if to.write_all(&buffer[..size]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_at_the_same_time_are_one_round_trip() {
        let start = Instant::now();
        let at = |began: u64, answered: u64| Exchange {
            began: start + Duration::from_millis(began),
            answered: start + Duration::from_millis(answered),
        };
        assert_eq!(longest_sequence(Vec::new()), 0);
        // The second pair waits for one of the first.
        let pairs = vec![at(0, 30), at(1, 32), at(31, 61), at(33, 63)];
        assert_eq!(longest_sequence(pairs), 2);
        assert_eq!(longest_sequence(vec![at(61, 90), at(0, 30), at(30, 60)]), 3);
    }

    #[test]
    fn responses_are_delayed_and_counted() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 4];
            while stream.read_exact(&mut request).is_ok() {
                stream.write_all(b"pong").unwrap();
            }
        });
        let delay = Duration::from_millis(20);
        let proxy = DelayingProxy::start(port, delay).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        let began = Instant::now();
        for _ in 0..3 {
            client.write_all(b"ping").unwrap();
            let mut response = [0; 4];
            client.read_exact(&mut response).unwrap();
            assert_eq!(&response, b"pong");
        }
        assert!(began.elapsed() >= 3 * delay);
        assert_eq!(proxy.round_trips(Instant::now()), 3);
        proxy.forget();
        assert_eq!(proxy.round_trips(Instant::now()), 0);
    }
}
