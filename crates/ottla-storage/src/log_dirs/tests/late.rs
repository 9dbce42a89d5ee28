//! Logs that could not be loaded at start and are loaded later.

use ottla_sync::fs::{Disk, Faults};
use ottla_sync::simulation::{self, Config, Host};
use ottla_types::{BrokerEpoch, Offset};

use super::*;
use crate::log_dirs::OpenLogError;
use crate::log_dirs::load::RELOAD_PAUSE;

/// Until the next start, the broker would lead partitions whose records nobody can read.
#[test]
fn logs_that_found_no_space_at_start_are_loaded_once_there_is_some() {
    let report = simulation::run(Config::new(1), || {
        let disk = Disk::new(1, "broker");
        let host = Host::new("broker").with_disk(&disk);
        let main = host.spawn("main", move || {
            let test = Dirs::new(1);
            let dirs = test.load().unwrap();
            let mut log = open(&dirs, 0);
            (0..3).for_each(|_| append(&mut log));
            drop((dirs, log));
            let full = Faults {
                is_full: true,
                ..Faults::default()
            };
            disk.set_faults("/", full);
            let dirs = test.load().unwrap();
            let claim = || dirs.open_log(&partition(0), TOPIC_ID, None, settings());
            let pause = || ottla_sync::thread::sleep(RELOAD_PAUSE);
            let not_loaded = |claimed| matches!(claimed, Err(OpenLogError::NotLoaded { .. }));
            assert!(not_loaded(claim()));
            pause();
            assert!(not_loaded(claim()), "the disk is full");
            disk.set_faults("/", Faults::default());
            assert!(
                not_loaded(claim()),
                "the directory is left alone for a while"
            );
            pause();
            let mut log = claim().unwrap();
            assert_eq!(log.log_end_offset(), Offset(3));
            log.close_job().run().unwrap();
            dirs.close(BrokerEpoch(1), &[]);
            drop((dirs, log));
            assert_eq!(test.load().unwrap().previous_broker_epoch(), BrokerEpoch(1));
        });
        main.join().unwrap();
    });
    report.result.unwrap();
}
