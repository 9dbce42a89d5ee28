//! A broker's stall, made on purpose and of a known length: a proxy that holds back what the broker answers.
//!
//! Requests pass at once, so that the broker has done its work when the stall is over and everything held back leaves at
//! one instant. What a client measures then has a distribution that can be computed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Passes connections on until the process ends.
#[derive(Debug)]
pub struct StallingProxy {
    port: u16,
    listener: Option<TcpListener>,
    /// Until when answers are held back.
    stalled_until: Arc<Mutex<Instant>>,
}

impl StallingProxy {
    /// Takes a port, so that a broker can be told to advertise it; connections wait until [`StallingProxy::pass_to`].
    pub fn bind() -> StallingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        StallingProxy {
            port: listener.local_addr().expect("it is bound").port(),
            listener: Some(listener),
            stalled_until: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Host and port for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Begins to pass connections on to a broker, `host:port`.
    pub fn pass_to(&mut self, broker: &str) {
        let listener = self.listener.take().expect("it is called once");
        let (broker, stalled_until) = (broker.to_owned(), self.stalled_until.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&broker) else {
                    continue;
                };
                let (Ok(client_out), Ok(server_out)) = (client.try_clone(), server.try_clone())
                else {
                    continue;
                };
                let held = stalled_until.clone();
                std::thread::spawn(move || copy(client, server_out, || {}));
                std::thread::spawn(move || copy(server, client_out, move || wait(&held)));
            }
        });
    }

    /// Holds back all answers from now on for so long.
    pub fn stall(&self, duration: Duration) {
        *self.stalled_until.lock().expect("nobody panics with it") = Instant::now() + duration;
    }
}

fn wait(stalled_until: &Mutex<Instant>) {
    loop {
        let until = *stalled_until.lock().expect("nobody panics with it");
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}

/// Copies until either side closes.
fn copy(mut from: TcpStream, mut to: TcpStream, before_each: impl Fn()) {
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        before_each();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
