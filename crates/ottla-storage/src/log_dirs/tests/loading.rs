//! What a start asks for while it loads very many logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_config::TopicConfig;
use ottla_types::Offset;

use super::{Dirs, Loading, append, load_settings, open, partition};
use crate::log_dirs::LoadSettings;

#[test]
fn each_thread_resolves_the_settings_of_a_topic_once() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    for n in 0..20 {
        append(&mut open(&dirs, n));
    }
    // Killed.
    drop(dirs);
    let dirs = test.open().unwrap();
    let resolved = AtomicUsize::new(0);
    let topic_config = |topic: &str| {
        assert_eq!(topic, "topic");
        resolved.fetch_add(1, Ordering::Relaxed);
        Arc::new(TopicConfig::default())
    };
    let loading = Loading::default();
    let settings = LoadSettings {
        topic_config: &topic_config,
        ..load_settings(&loading)
    };
    dirs.load(&settings).unwrap();
    let resolved = resolved.load(Ordering::Relaxed);
    assert!((1..=settings.threads_per_dir).contains(&resolved));
    assert_eq!(open(&dirs, 19).log_end_offset(), Offset(1));
    let only = dirs.only_directory();
    assert!(only.is_some() && only == dirs.directory_of(&partition(19)));
}

#[test]
fn no_directory_of_several_is_that_of_all_logs() {
    let test = Dirs::new(2);
    assert_eq!(test.load().unwrap().only_directory(), None);
}
