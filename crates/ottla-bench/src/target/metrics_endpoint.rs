//! Reads the metrics of a remote cluster's brokers over HTTP, in the text format of Prometheus and
//! OpenMetrics.
//!
//! Samples with the same name are summed over labels and brokers, because a run needs the usage of
//! the whole cluster. A response that is late or malformed is an error.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indexmap::IndexMap;

const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum response size, in bytes. The exporter of a large Kafka broker returns a few megabytes.
const MOST_BYTES: u64 = 64 << 20;

/// An address such as `http://host:9404/metrics`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsEndpoint {
    url: String,
    /// Host and port.
    authority: String,
    path: String,
}

/// The samples of one scrape, by name.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Metrics(IndexMap<String, f64>);

impl MetricsEndpoint {
    pub fn parse(url: &str) -> Result<MetricsEndpoint> {
        let refused = || {
            format!(
                "--metrics {url}: not accepted; give an address such as http://host:9404/metrics"
            )
        };
        let rest = url.strip_prefix("http://").with_context(refused)?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/metrics"),
        };
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        ensure!(
            !authority.is_empty() && authority.chars().chain(path.chars()).all(is_plain),
            refused()
        );
        let authority = match authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
            Some((_, port)) if !port.ends_with(']') => bail!(refused()),
            _ => format!("{authority}:80"),
        };
        Ok(MetricsEndpoint {
            url: url.to_owned(),
            authority,
            path: path.to_owned(),
        })
    }

    /// Fetches the metrics. Blocks.
    pub fn scrape(&self) -> Result<Metrics> {
        let body = self
            .get()
            .with_context(|| format!("{} gives no metrics", self.url))?;
        Ok(Metrics::parse(&body))
    }

    fn get(&self) -> Result<String> {
        let address = self.authority.to_socket_addrs()?.next();
        let address = address.context("the host has no address")?;
        let mut connection = TcpStream::connect_timeout(&address, PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        // HTTP/1.0, so that the body is not chunked and ends with the connection.
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain\r\n\r\n",
            self.path, self.authority
        );
        connection.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        connection.take(MOST_BYTES).read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer).context("its response is not text")?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("it does not speak HTTP")?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        ensure!(status == "200", "it answers with status {status}");
        Ok(body.to_owned())
    }
}

impl Metrics {
    fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // A label's value may contain braces, but its quotes are escaped, so the last brace
            // ends the labels.
            let (name, rest) = match (line.find('{'), line.rfind('}')) {
                (Some(open), Some(close)) if open < close => (&line[..open], &line[close + 1..]),
                _ => line.split_once(' ').unwrap_or((line, "")),
            };
            let value = rest
                .split_whitespace()
                .next()
                .and_then(|it| it.parse::<f64>().ok());
            if let Some(value) = value.filter(|it| it.is_finite()) {
                metrics.add(name, value);
            }
        }
        metrics
    }

    fn add(&mut self, name: &str, value: f64) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += value,
            None => {
                self.0.insert(name.to_owned(), value);
            }
        }
    }

    /// Adds the metrics of another broker.
    pub fn plus(mut self, other: &Metrics) -> Metrics {
        for (name, value) in &other.0 {
            self.add(name, *value);
        }
        self
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// The increase of counters and the current value of everything else, without zeros.
    pub fn since(&self, before: &Metrics) -> IndexMap<String, f64> {
        let is_counter = |name: &str| {
            ["_total", "_count", "_sum", "_bucket"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        let mut since = IndexMap::new();
        for (name, now) in &self.0 {
            let value = if is_counter(name) {
                now - before.get(name).unwrap_or(0.0)
            } else {
                *now
            };
            if value != 0.0 && !name.ends_with("_bucket") {
                since.insert(name.clone(), value);
            }
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |url: &str| MetricsEndpoint::parse(url).map(|it| (it.authority, it.path));
        let of = |authority: &str, path: &str| (authority.to_owned(), path.to_owned());
        assert_eq!(read("http://a:9404/x/y").unwrap(), of("a:9404", "/x/y"));
        assert_eq!(read("http://a").unwrap(), of("a:80", "/metrics"));
        assert_eq!(read("http://[::1]:1/").unwrap(), of("[::1]:1", "/"));
        for bad in [
            "https://a/metrics",
            "a:9404",
            "http://",
            "http://a:b/",
            "http://a b/",
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains("not accepted"), "{bad}: {error}");
        }
    }

    #[test]
    fn samples_are_added_up_and_counters_are_counted_from_before() {
        let before = "# TYPE x counter\nx_total{a=\"1\"} 5\nx_total{a=\"}\"} 6 1700000000\ny 3\nz_total 1\nbad NaN\n";
        let after = "x_total{a=\"1\"} 10\nx_total{a=\"}\"} 6\ny 4\nz_total 1\n# EOF\n";
        let (before, after) = (Metrics::parse(before), Metrics::parse(after));
        assert_eq!(before.get("x_total"), Some(11.0));
        let since = after.since(&before);
        assert_eq!(since.get("x_total"), Some(&5.0));
        assert_eq!(since.get("y"), Some(&4.0));
        assert_eq!(since.len(), 2, "{since:?}");
        let both = after.clone().plus(&after);
        assert_eq!(both.get("y"), Some(8.0));
    }

    #[test]
    fn an_endpoint_is_asked_and_a_refusal_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for answer in ["200 OK\r\n\r\na_total 7\n", "404 Not Found\r\n\r\n"] {
                let (mut client, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let read = client.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /metrics HTTP/1.0\r\n"));
                write!(client, "HTTP/1.0 {answer}").unwrap();
            }
        });
        let endpoint = MetricsEndpoint::parse(&url).unwrap();
        assert_eq!(endpoint.scrape().unwrap().get("a_total"), Some(7.0));
        let error = format!("{:#}", endpoint.scrape().unwrap_err());
        assert!(
            error.contains("gives no metrics: it answers with status 404"),
            "{error}"
        );
        server.join().unwrap();
        assert!(endpoint.scrape().is_err());
    }
}
