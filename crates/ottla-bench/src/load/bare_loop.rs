//! The machine's own cost of a produce request: a loop that receives a frame, computes its CRC-32C,
//! appends it to one of six files and sends a short response, with one blocking thread per
//! connection.
//!
//! It is the lower bound of a broker's CPU time. This bound differs between machines by a factor of
//! several: on virtual machines whose host reclaims memory, new pages of the page cache dominate
//! it. The loop runs in a separate process, so that its resource usage can be read like a broker's.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::process_usage::{ProcessUsage, UsageReport};

const FILES: usize = 6;
/// Approximate size of a Produce response for one partition, in bytes.
const ANSWER_BYTES: usize = 60;

#[derive(Args, Clone, Copy, Debug)]
pub struct BareLoopOptions {
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// Frames in flight per connection.
    #[arg(long, default_value_t = 5)]
    pub in_flight: usize,
    #[arg(long = "batch-bytes", default_value_t = 64 * 1024)]
    pub frame_bytes: usize,
    #[arg(long, default_value_t = 1_000_000_000)]
    pub bytes: u64,
    /// Send this many bytes first, without measuring them.
    #[arg(long, default_value_t = 0)]
    pub warmup_bytes: u64,
}

/// The result of the loop.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BareLoopReport {
    pub seconds: f64,
    pub frames: u64,
    pub bytes: u64,
    /// In units of 10^6 bytes per second.
    pub megabytes_per_second: f64,
    /// Resource usage of the loop's process.
    pub server: UsageReport,
}

impl fmt::Display for BareLoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "bare loop: {:.2} s  {} frames  {:.1} MB/s\n  loop: {:.2} CPU s, {:.3} per GB",
            self.seconds,
            self.frames,
            self.megabytes_per_second,
            self.server.cpu_seconds,
            self.server.cpu_seconds_per_gb
        )
    }
}

/// Runs the loop in a separate process, with its files in `dir`, and generates load for it.
pub fn run(dir: &Path, options: BareLoopOptions) -> Result<BareLoopReport> {
    ensure!(options.connections > 0, "--connections must be 1 or more");
    ensure!(options.in_flight > 0, "--in-flight must be 1 or more");
    ensure!(options.frame_bytes > 0, "--batch-bytes must be 1 or more");
    let server = Server::start(dir, options.frame_bytes)?;
    let mut streams = Vec::new();
    for _ in 0..options.connections {
        let stream = TcpStream::connect(("127.0.0.1", server.port))?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    send(&mut streams, options, options.warmup_bytes)?;
    let before = ProcessUsage::of(server.child.id())?;
    let started = Instant::now();
    let frames = send(&mut streams, options, options.bytes)?;
    let seconds = started.elapsed().as_secs_f64();
    let used = ProcessUsage::of(server.child.id())?;
    let bytes = frames * options.frame_bytes as u64;
    Ok(BareLoopReport {
        seconds,
        frames,
        bytes,
        megabytes_per_second: bytes as f64 / seconds / 1e6,
        server: used.since(&before, bytes, bytes),
    })
}

/// Sends frames over all connections in parallel; returns their number.
fn send(streams: &mut [TcpStream], options: BareLoopOptions, bytes: u64) -> Result<u64> {
    let of_each = bytes / options.frame_bytes as u64 / streams.len() as u64;
    let count = streams.len() as u64;
    std::thread::scope(|scope| {
        let senders: Vec<_> = streams
            .iter_mut()
            .map(|stream| scope.spawn(move || send_over(stream, options, of_each)))
            .collect();
        for sender in senders {
            sender.join().expect("a sender does not panic")?;
        }
        Ok(of_each * count)
    })
}

fn send_over(stream: &mut TcpStream, options: BareLoopOptions, frames: u64) -> Result<()> {
    let mut frame = vec![0; 4 + options.frame_bytes];
    for (index, byte) in frame.iter_mut().enumerate().skip(4) {
        *byte = (index * 31 % 251) as u8;
    }
    let mut answer = [0; ANSWER_BYTES];
    let (mut sent, mut answered) = (0, 0);
    while answered < frames {
        while sent < frames && sent - answered < options.in_flight as u64 {
            stream.write_all(&frame)?;
            sent += 1;
        }
        stream
            .read_exact(&mut answer)
            .context("the bare loop has ended")?;
        answered += 1;
    }
    Ok(())
}

/// The loop's process, killed on drop.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(dir: &Path, frame_bytes: usize) -> Result<Server> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("bare-loop-server")
            .arg(dir)
            .arg(frame_bytes.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .context("the process of the bare loop")?;
        let stdout = child.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let port = line.trim().parse();
        let mut server = Server { child, port: 0 };
        server.port = port.with_context(|| format!("the bare loop did not start: {line:?}"))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One of the files, and the position of its next frame.
struct LogFile {
    file: File,
    position: Mutex<u64>,
}

/// The loop: prints its port and serves until it is killed. Its files are unlinked at once, so that
/// no file remains.
pub fn serve(dir: &Path, frame_bytes: usize) -> Result<()> {
    let mut files = Vec::new();
    for index in 0..FILES {
        let path = dir.join(format!("bare-loop.{index}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        std::fs::remove_file(&path)?;
        files.push(LogFile {
            file,
            position: Mutex::new(0),
        });
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    std::thread::scope(|scope| {
        for (connection, stream) in listener.incoming().enumerate() {
            let (stream, files) = (stream?, &files);
            // A connection ends when its peer closes it.
            scope.spawn(move || serve_one(stream, files, connection, frame_bytes));
        }
        Ok(())
    })
}

fn serve_one(
    mut stream: TcpStream,
    files: &[LogFile],
    connection: usize,
    frame_bytes: usize,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut frame = vec![0; 4 + frame_bytes];
    let mut next = connection;
    loop {
        stream.read_exact(&mut frame)?;
        let body = &frame[4..];
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32;
        next = (next + 1) % files.len();
        let LogFile { file, position } = &files[next];
        let mut position = position.lock().expect("no thread of the loop panics");
        file.write_all_at(body, *position)?;
        *position += body.len() as u64;
        drop(position);
        let mut answer = [0; ANSWER_BYTES];
        answer[..4].copy_from_slice(&crc.to_be_bytes());
        stream.write_all(&answer)?;
    }
}
