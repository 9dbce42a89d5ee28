//! Metrics of this process from `/proc`. The names come from the Prometheus client libraries, and
//! the names of the two metrics of disk bytes from Kafka's `LinuxIoMetricsCollector`.

use procfs::process::{Io, Process, Stat};

use crate::family::Family;

pub fn collect(families: &mut Vec<Family>) {
    // Values that the kernel does not expose, such as `/proc/self/io` in a container, count as 0.
    let process = Process::myself().ok();
    let process = process.as_ref();
    let stat = process.and_then(|process| process.stat().ok());
    let field = |of: fn(&Stat) -> u64| stat.as_ref().map_or(0.0, |stat| of(stat) as f64);
    let io = process.and_then(|process| process.io().ok());
    let disk = |of: fn(&Io) -> u64| io.as_ref().map_or(0.0, |io| of(io) as f64);
    let ticks = procfs::ticks_per_second() as f64;
    let max_fds = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[rustfmt::skip]
    let gauges = [
        ("process_resident_memory_bytes", "Memory of the process that is in use", field(|stat| stat.rss) * procfs::page_size() as f64),
        ("process_virtual_memory_bytes", "Addresses that the process has taken", field(|stat| stat.vsize)),
        ("process_start_time_seconds", "When the process started, since 1970", boot_time() + field(|stat| stat.starttime) / ticks),
        ("process_open_fds", "Files and sockets that are open", process.map_or(0, |it| it.fd_count().unwrap_or(0)) as f64),
        ("process_max_fds", "How many files and sockets may be open", max_fds.map_or(f64::INFINITY, |limit| limit as f64)),
        ("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes read from disks by this process", disk(|io| io.read_bytes)),
        ("kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes written to disks by this process", disk(|io| io.write_bytes)),
    ];
    let cpu = field(|stat| stat.utime + stat.stime) / ticks;
    let help = "Processor time of the process, user and system";
    families.push(Family::counter("process_cpu_seconds", help).value(cpu));
    families.extend(Family::gauges(gauges));
}

fn boot_time() -> f64 {
    procfs::boot_time_secs().unwrap_or(0) as f64
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
        let now = ottla_sync::time::wall_clock()
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
