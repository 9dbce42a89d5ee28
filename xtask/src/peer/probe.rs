//! The one request that this crate speaks itself: ApiVersions in its first version, by hand, so that what a broker
//! says of itself is read by code that shares nothing with the broker under test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// One row of a broker's ApiVersions answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdvertisedApi {
    pub api_key: i16,
    pub min_version: i16,
    pub max_version: i16,
}

const API_VERSIONS: i16 = 18;
const CORRELATION_ID: i32 = 7;
/// An answer lists fewer than a hundred APIs of six bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// Whether a broker on that port of this machine answers.
pub fn answers(port: u16) -> bool {
    advertised_apis(port).is_ok()
}

/// Asks the broker on that port which APIs it serves in which versions.
pub fn advertised_apis(port: u16) -> Result<Vec<AdvertisedApi>> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;

    let client_id = b"xtask";
    let mut request = Vec::new();
    request.extend_from_slice(&API_VERSIONS.to_be_bytes());
    request.extend_from_slice(&0i16.to_be_bytes());
    request.extend_from_slice(&CORRELATION_ID.to_be_bytes());
    request.extend_from_slice(&(client_id.len() as i16).to_be_bytes());
    request.extend_from_slice(client_id);
    stream.write_all(&(request.len() as i32).to_be_bytes())?;
    stream.write_all(&request)?;

    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size)).context("negative answer size")?;
    ensure!(size <= MAX_ANSWER, "an ApiVersions answer of {size} bytes");
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Result<Vec<AdvertisedApi>> {
    ensure!(answer.len() >= 10, "the answer is cut short");
    let correlation_id = i32::from_be_bytes(answer[0..4].try_into()?);
    ensure!(
        correlation_id == CORRELATION_ID,
        "correlation id {correlation_id}"
    );
    let error = i16::from_be_bytes(answer[4..6].try_into()?);
    ensure!(error == 0, "error code {error}");
    let count = usize::try_from(i32::from_be_bytes(answer[6..10].try_into()?))?;
    let rows = &answer[10..];
    ensure!(
        rows.len() == 6 * count,
        "{count} rows in {} bytes",
        rows.len()
    );
    let mut apis: Vec<AdvertisedApi> = rows
        .chunks_exact(6)
        .map(|row| AdvertisedApi {
            api_key: i16::from_be_bytes([row[0], row[1]]),
            min_version: i16::from_be_bytes([row[2], row[3]]),
            max_version: i16::from_be_bytes([row[4], row[5]]),
        })
        .collect();
    apis.sort();
    Ok(apis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_a_damaged_one_refused() {
        let mut answer = Vec::new();
        answer.extend_from_slice(&CORRELATION_ID.to_be_bytes());
        answer.extend_from_slice(&0i16.to_be_bytes());
        answer.extend_from_slice(&2i32.to_be_bytes());
        for number in [18i16, 0, 4, 0, 3, 13] {
            answer.extend_from_slice(&number.to_be_bytes());
        }
        let apis = parse(&answer).unwrap();
        assert_eq!(
            apis[0],
            AdvertisedApi {
                api_key: 0,
                min_version: 3,
                max_version: 13
            }
        );
        assert_eq!(apis[1].api_key, 18);
        assert!(parse(&answer[..answer.len() - 1]).is_err());
        answer[5] = 35;
        assert!(parse(&answer).is_err());
    }
}
