//! A proxy that disturbs the network path to a broker: it holds back the broker's responses for a
//! known time, blocks both directions, or delays everything.
//!
//! While only responses are held back, requests pass at once. The broker has then processed them
//! when the stall ends, and all responses leave at the same instant, so the latency distribution
//! that a client measures can be computed.
//!
//! A cut behaves like a network partition: connections stay open, new ones appear to be
//! established, and no data arrives. Data in flight is delivered after the cut is mended.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Forwards connections until the process exits.
#[derive(Debug)]
pub struct StallingProxy {
    port: u16,
    listener: Option<TcpListener>,
    way: Arc<Way>,
}

/// How data is forwarded.
#[derive(Debug)]
struct Way {
    state: Mutex<State>,
    mended: Condvar,
}

#[derive(Debug)]
struct State {
    /// Responses are held back until this time.
    stalled_until: Instant,
    /// Both directions are blocked.
    is_cut: bool,
    /// Delay of all data.
    delay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl StallingProxy {
    /// Binds a port, so that a broker can be configured to advertise it. Connections wait until
    /// [`StallingProxy::pass_to`].
    pub fn bind() -> StallingProxy {
        StallingProxy::bind_to(0)
    }

    /// Like [`StallingProxy::bind`], on a port that is known to be free.
    pub fn bind_to(port: u16) -> StallingProxy {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let state = State {
            stalled_until: Instant::now(),
            is_cut: false,
            delay: Duration::ZERO,
        };
        StallingProxy {
            port: listener.local_addr().expect("it is bound").port(),
            listener: Some(listener),
            way: Arc::new(Way {
                state: Mutex::new(state),
                mended: Condvar::new(),
            }),
        }
    }

    /// Client address, `host:port`.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts to forward connections to a broker, `host:port`.
    pub fn pass_to(&mut self, broker: &str) {
        let listener = self.listener.take().expect("it is called once");
        let (broker, way) = (broker.to_owned(), self.way.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&broker) else {
                    continue;
                };
                let (Ok(client_out), Ok(server_out)) = (client.try_clone(), server.try_clone())
                else {
                    continue;
                };
                let (there, back) = (way.clone(), way.clone());
                std::thread::spawn(move || copy(client, server_out, &there, Direction::Requests));
                std::thread::spawn(move || copy(server, client_out, &back, Direction::Answers));
            }
        });
    }

    /// Holds back all responses for `duration` from now.
    pub fn stall(&self, duration: Duration) {
        self.change(|state| state.stalled_until = Instant::now() + duration);
    }

    /// Blocks both directions.
    pub fn cut(&self) {
        self.change(|state| state.is_cut = true);
    }

    /// Delays all data by `delay`; later data queues behind it.
    pub fn slow(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// Undoes [`StallingProxy::cut`] and [`StallingProxy::slow`].
    pub fn mend(&self) {
        self.change(|state| {
            state.is_cut = false;
            state.delay = Duration::ZERO;
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(
            &mut self
                .way
                .state
                .lock()
                .expect("no thread panics with the lock"),
        );
        self.way.mended.notify_all();
    }
}

impl Way {
    /// Blocks until data read now may be forwarded.
    fn wait(&self, direction: Direction) {
        let read_at = Instant::now();
        let mut state = self.state.lock().expect("no thread panics with the lock");
        loop {
            let until = match direction {
                Direction::Requests => read_at + state.delay,
                Direction::Answers => state.stalled_until.max(read_at + state.delay),
            };
            let left = until.saturating_duration_since(Instant::now());
            if !state.is_cut && left.is_zero() {
                return;
            }
            state = if state.is_cut {
                self.mended
                    .wait(state)
                    .expect("no thread panics with the lock")
            } else {
                let waited = self.mended.wait_timeout(state, left);
                waited.expect("no thread panics with the lock").0
            };
        }
    }
}

/// Copies until either side closes.
fn copy(mut from: TcpStream, mut to: TcpStream, way: &Way, direction: Direction) {
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        way.wait(direction);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo server.
    fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut out = connection.try_clone().unwrap();
                    let _ = std::io::copy(&mut connection, &mut out);
                });
            }
        });
        address
    }

    #[test]
    fn a_cut_holds_everything_back_until_it_is_mended() {
        let mut proxy = StallingProxy::bind();
        proxy.pass_to(&echo());
        let mut client = TcpStream::connect(proxy.bootstrap()).unwrap();
        let mut answer = [0; 1];
        client.write_all(b"a").unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"a");

        proxy.cut();
        client.write_all(b"b").unwrap();
        let patience = Duration::from_millis(100);
        client.set_read_timeout(Some(patience)).unwrap();
        assert!(client.read_exact(&mut answer).is_err());
        proxy.mend();
        client.set_read_timeout(None).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"b");

        proxy.slow(Duration::from_millis(60));
        let began = Instant::now();
        client.write_all(b"c").unwrap();
        client.read_exact(&mut answer).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(120));
    }
}
