//! The answers of a broker to invalid tokens, sent as bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const SASL_HANDSHAKE: i16 = 17;
const SASL_AUTHENTICATE: i16 = 36;
const PATIENCE: Duration = Duration::from_secs(120);
const MOST_BYTES: usize = 64 * 1024;

/// Sends a token after a handshake for GSSAPI. `handshake` 0 sends it without a header. Returns a
/// description of the response.
pub fn answer_to(port: u16, handshake: i16, token: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = b"GSSAPI";
    let mut body = (name.len() as i16).to_be_bytes().to_vec();
    body.extend_from_slice(name);
    send(&mut stream, &request(SASL_HANDSHAKE, handshake, &body))?;
    let shaken = receive(&mut stream)?.context("the handshake closes the connection")?;
    ensure!(
        shaken.get(4..6) == Some(&[0, 0]),
        "a handshake with {shaken:?}"
    );
    match handshake {
        0 => send(&mut stream, token)?,
        _ => {
            let mut body = (token.len() as i32).to_be_bytes().to_vec();
            body.extend_from_slice(token);
            send(&mut stream, &request(SASL_AUTHENTICATE, 1, &body))?;
        }
    }
    let Some(answer) = receive(&mut stream)? else {
        return Ok("closed".to_owned());
    };
    let after = match receive(&mut stream)? {
        Some(_) => "and more",
        None => "closed",
    };
    // The error code and message follow the correlation ID.
    let (Some(code), Some(length)) = (number(&answer, 4), number(&answer, 6)) else {
        return Ok(format!("{answer:?}, {after}"));
    };
    let length = usize::try_from(length).unwrap_or(0);
    let message = answer.get(8..8 + length).unwrap_or_default();
    let message = String::from_utf8_lossy(message);
    Ok(format!("error {code}: {message}; {after}"))
}

fn number(bytes: &[u8], at: usize) -> Option<i16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(i16::from_be_bytes(bytes.try_into().ok()?))
}

fn request(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut request = api.to_be_bytes().to_vec();
    request.extend_from_slice(&version.to_be_bytes());
    // The correlation ID, and no client ID.
    request.extend_from_slice(&1i32.to_be_bytes());
    request.extend_from_slice(&(-1i16).to_be_bytes());
    request.extend_from_slice(body);
    request
}

fn send(stream: &mut TcpStream, frame: &[u8]) -> Result<()> {
    let mut bytes = (frame.len() as i32).to_be_bytes().to_vec();
    bytes.extend_from_slice(frame);
    Ok(stream.write_all(&bytes)?)
}

/// The next frame; `None` if the connection is closed.
fn receive(stream: &mut TcpStream) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if let Err(error) = stream.read_exact(&mut length) {
        let is_timeout = error.kind() == std::io::ErrorKind::WouldBlock;
        ensure!(!is_timeout, "no answer within {PATIENCE:?}");
        return Ok(None);
    }
    let length = usize::try_from(i32::from_be_bytes(length))?;
    ensure!(length <= MOST_BYTES, "a frame of {length} bytes");
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(Some(frame))
}
