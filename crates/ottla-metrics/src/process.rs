//! What the kernel says of this process. The names are those of Prometheus' client libraries; the two of disk
//! bytes are Kafka's `LinuxIoMetricsCollector`.

use crate::family::Family;

/// Fields of `/proc/self/stat` after the closing bracket of the command's name, the state being the first.
const UTIME: usize = 11;
const STIME: usize = 12;
const START_TIME: usize = 19;
const VSIZE: usize = 20;
const RSS: usize = 21;

pub fn collect(families: &mut Vec<Family>) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0.0);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Memory of the process that is in use",
            field(RSS) * rustix::param::page_size() as f64,
        ),
        (
            "process_virtual_memory_bytes",
            "Addresses that the process has taken",
            field(VSIZE),
        ),
        (
            "process_start_time_seconds",
            "When the process started, since 1970",
            boot_time() + field(START_TIME) / ticks,
        ),
        (
            "process_open_fds",
            "Files and sockets that are open",
            std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as f64,
        ),
        (
            "process_max_fds",
            "How many files and sockets may be open",
            rustix::process::getrlimit(rustix::process::Resource::Nofile)
                .current
                .map_or(f64::INFINITY, |limit| limit as f64),
        ),
        (
            "kafka_server_kafkaserver_linux_disk_read_bytes",
            "Bytes that were read from a disk for this process",
            io_bytes("read_bytes"),
        ),
        (
            "kafka_server_kafkaserver_linux_disk_write_bytes",
            "Bytes that were written to a disk for this process",
            io_bytes("write_bytes"),
        ),
    ];
    families.push(
        Family::counter(
            "process_cpu_seconds",
            "Processor time of the process, user and system",
        )
        .value((field(UTIME) + field(STIME)) / ticks),
    );
    families.extend(gauges.map(|(name, help, value)| Family::gauge(name, help).value(value)));
}

fn boot_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    number_after(&stat, "btime ")
}

fn io_bytes(name: &str) -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    number_after(&io, &format!("{name}: "))
}

/// The number behind a word at the beginning of a line; 0 where there is none.
fn number_after(text: &str, word: &str) -> f64 {
    let number = text.lines().find_map(|line| line.strip_prefix(word));
    number.and_then(|n| n.trim().parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        let mut families = Vec::new();
        collect(&mut families);
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name == name);
            family.expect(name).samples[0].value
        };
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-1.0..7200.0).contains(&age), "started {age} s ago");
        let resident = value("process_resident_memory_bytes");
        assert!((1e6..1e11).contains(&resident), "{resident} bytes");
        assert!(value("process_virtual_memory_bytes") >= resident);
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_cpu_seconds") < 7200.0);
    }
}
