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
use bytes::Bytes;
use clap::Args;
use ottla_records::Compression;
use ottla_types::Timestamp;
use serde::Serialize;

use super::prepared::{BatchShape, filled};
use super::process_usage::{ProcessUsage, UsageReport};
use super::report::show_rest_of_machine;
use super::rest_of_machine::RestOfMachine;
use crate::workload::values::{Content, ValueSizes, ValueSource};

const FILES: usize = 6;
/// Approximate size of a Produce response for one partition, in bytes.
const ANSWER_BYTES: usize = 60;
/// The length before each frame.
const LENGTH_BYTES: usize = 4;

/// The order in which the two sizes are measured. A part of the cost changes with time, such as that of
/// memory that was not touched before.
const ORDER: [usize; 4] = [0, 1, 1, 0];
const SEED: u64 = 1;

#[derive(Args, Clone, Copy, Debug)]
pub struct BareLoopOptions {
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// Frames in flight per connection.
    #[arg(long, default_value_t = 5)]
    pub in_flight: usize,
    /// Size of a frame. It is measured twice: exactly this, and a batch of whole records as `produce`
    /// sends with this option.
    #[arg(long = "batch-bytes", default_value_t = 64 * 1024)]
    pub frame_bytes: usize,
    /// Size of the value of a batch's records.
    #[arg(long, default_value_t = 100)]
    pub record_bytes: usize,
    /// Bytes of frames to send, of each of the two sizes.
    #[arg(long, default_value_t = 1_000_000_000)]
    pub bytes: u64,
    /// Send this many bytes first, without measuring them.
    #[arg(long, default_value_t = 0)]
    pub warmup_bytes: u64,
    /// Also report the CPU time of the machine without this tool, until all files are on the disk.
    #[arg(long)]
    pub machine_cpu: bool,
}

/// The results of the loop with frames of two sizes, which it appends without a gap.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BareLoopReport {
    /// Each frame is a batch as `produce` sends with the same options. A broker appends the same bytes
    /// at the same positions, so this is its lower bound.
    pub batches: LoopReport,
    /// Each frame has exactly the given size. With whole pages, which the file system takes as they
    /// are, this is the lower bound of the machine, which no broker with Kafka's format can reach.
    pub exact: LoopReport,
}

/// The result of the loop with frames of one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LoopReport {
    pub frame_bytes: usize,
    pub seconds: f64,
    pub frames: u64,
    pub bytes: u64,
    /// In units of 10^6 bytes per second.
    pub megabytes_per_second: f64,
    /// CPU seconds of the machine without this process per 10^9 bytes, until they are on the disk, if
    /// asked for.
    pub rest_of_machine_cpu_seconds_per_gb: Option<f64>,
    /// Resource usage of the loop's process.
    pub server: UsageReport,
}

impl fmt::Display for BareLoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, report) in [("batches", &self.batches), ("exact", &self.exact)] {
            writeln!(
                f,
                "bare loop, {name}: {:.2} s  {} frames of {} bytes  {:.1} MB/s\n  \
                 loop: {:.2} CPU s, {:.3} per GB",
                report.seconds,
                report.frames,
                report.frame_bytes,
                report.megabytes_per_second,
                report.server.cpu_seconds,
                report.server.cpu_seconds_per_gb
            )?;
            if let Some(cpu) = report.rest_of_machine_cpu_seconds_per_gb {
                show_rest_of_machine(f, cpu)?;
            }
        }
        Ok(())
    }
}

/// Runs the loop in two other processes, one for each size of frames, with their files in `dir`, and
/// generates load for them in turn.
pub fn run(dir: &Path, options: BareLoopOptions) -> Result<BareLoopReport> {
    ensure!(options.connections > 0, "--connections must be 1 or more");
    ensure!(options.in_flight > 0, "--in-flight must be 1 or more");
    ensure!(options.frame_bytes > 0, "--batch-bytes must be 1 or more");
    let exact: Vec<u8> = (0..options.frame_bytes)
        .map(|index| (index * 31 % 251) as u8)
        .collect();
    let mut loops = [
        Measured::start(dir, &options, &batch(&options))?,
        Measured::start(dir, &options, &exact)?,
    ];
    for number in ORDER {
        loops[number].measure(&options, options.bytes / 2)?;
    }
    let [batches, exact] = &loops;
    Ok(BareLoopReport {
        batches: batches.report()?,
        exact: exact.report()?,
    })
}

/// A batch as `produce` sends with the same options.
fn batch(options: &BareLoopOptions) -> Bytes {
    let shape = BatchShape {
        batch_bytes: options.frame_bytes,
        record_bytes: options.record_bytes,
        compression: Compression::None,
    };
    let sizes = ValueSizes::fixed(options.record_bytes);
    let values = ValueSource::random(Content::Letters, sizes, SEED, u64::MAX);
    let filled = filled(shape, Timestamp(0), &mut values.values(SEED, 0));
    filled.build().to_bytes()
}

/// A process with the loop, the load for it, and what was measured until now.
struct Measured {
    server: Server,
    streams: Vec<TcpStream>,
    /// Begins with its length.
    frame: Vec<u8>,
    before: ProcessUsage,
    seconds: f64,
    frames: u64,
    rest_of_machine_cpu_seconds: Option<f64>,
}

impl Measured {
    /// With connections, after the warm-up.
    fn start(dir: &Path, options: &BareLoopOptions, body: &[u8]) -> Result<Measured> {
        let server = Server::start(dir, body.len())?;
        let mut streams = Vec::new();
        for _ in 0..options.connections {
            let stream = TcpStream::connect(("127.0.0.1", server.port))?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let length = u32::try_from(body.len()).context("too large --batch-bytes")?;
        let frame = [&length.to_be_bytes()[..], body].concat();
        send(&mut streams, &frame, options, options.warmup_bytes)?;
        Ok(Measured {
            before: ProcessUsage::of(server.child.id())?,
            server,
            streams,
            frame,
            seconds: 0.0,
            frames: 0,
            rest_of_machine_cpu_seconds: None,
        })
    }

    fn measure(&mut self, options: &BareLoopOptions, bytes: u64) -> Result<()> {
        let machine = options.machine_cpu.then(RestOfMachine::now).transpose()?;
        let started = Instant::now();
        self.frames += send(&mut self.streams, &self.frame, options, bytes)?;
        self.seconds += started.elapsed().as_secs_f64();
        if let Some(before) = machine {
            *self.rest_of_machine_cpu_seconds.get_or_insert(0.0) += before.cpu_seconds_since()?;
        }
        Ok(())
    }

    /// The process is idle while the other is measured.
    fn report(&self) -> Result<LoopReport> {
        let used = ProcessUsage::of(self.server.child.id())?;
        let frame_bytes = body_of(&self.frame).len();
        let bytes = self.frames * frame_bytes as u64;
        let rest_of_machine = self.rest_of_machine_cpu_seconds;
        Ok(LoopReport {
            frame_bytes,
            seconds: self.seconds,
            frames: self.frames,
            bytes,
            megabytes_per_second: bytes as f64 / self.seconds / 1e6,
            rest_of_machine_cpu_seconds_per_gb: rest_of_machine
                .map(|seconds| seconds / (bytes as f64 / 1e9)),
            server: used.since(&self.before, bytes, bytes),
        })
    }
}

/// Sends frames over all connections in parallel; returns their number.
fn send(
    streams: &mut [TcpStream],
    frame: &[u8],
    options: &BareLoopOptions,
    bytes: u64,
) -> Result<u64> {
    let of_each = bytes / body_of(frame).len() as u64 / streams.len() as u64;
    let count = streams.len() as u64;
    std::thread::scope(|scope| {
        let senders: Vec<_> = streams
            .iter_mut()
            .map(|stream| scope.spawn(move || send_over(stream, frame, options.in_flight, of_each)))
            .collect();
        for sender in senders {
            sender.join().expect("a sender does not panic")?;
        }
        Ok(of_each * count)
    })
}

fn send_over(stream: &mut TcpStream, frame: &[u8], in_flight: usize, frames: u64) -> Result<()> {
    let mut answer = [0; ANSWER_BYTES];
    let (mut sent, mut answered) = (0, 0);
    while answered < frames {
        while sent < frames && sent - answered < in_flight as u64 {
            stream.write_all(frame)?;
            sent += 1;
        }
        stream
            .read_exact(&mut answer)
            .context("the bare loop has ended")?;
        answered += 1;
    }
    Ok(())
}

/// A frame without its length.
fn body_of(frame: &[u8]) -> &[u8] {
    &frame[LENGTH_BYTES..]
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
    let mut frame = vec![0; LENGTH_BYTES + frame_bytes];
    let mut next = connection;
    loop {
        stream.read_exact(&mut frame)?;
        let body = body_of(&frame);
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
