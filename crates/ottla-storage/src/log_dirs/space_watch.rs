//! Queries the free space of the log directories' file systems every second.

use std::sync::Arc;
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_log::LogReader;
use ottla_sync::task::JoinSet;

use super::LogDirs;
use super::disk_space::DiskSpace;
use super::log_dir::LogDir;

/// The query interval, and the maximum delay until appends resume.
const LOOK: Duration = Duration::from_secs(1);

impl LogDirs {
    /// The space left in a log's directory.
    pub fn space_of(&self, log: &LogReader) -> Arc<DiskSpace> {
        let dir = self.dir_of(log);
        dir.map(|dir| Arc::clone(&dir.space)).unwrap_or_default()
    }

    /// Queries all file systems. Blocks.
    pub fn look_at_space(&self, reserve_bytes: i64) {
        for dir in self.online() {
            look_at(dir, reserve_bytes);
        }
    }

    /// Queries each directory independently until the broker stops, because one may hang.
    pub async fn watch_space(self: Arc<Self>, context: Arc<NodeContext>) {
        let mut watches = JoinSet::new();
        for dir in &self.dirs {
            watches.spawn(watch(Arc::clone(dir), Arc::clone(&context)));
        }
        while watches.join_next().await.is_some() {}
    }
}

async fn watch(dir: Arc<LogDir>, context: Arc<NodeContext>) {
    loop {
        ottla_sync::select! {
            () = ottla_sync::time::sleep(LOOK) => {}
            () = context.stopping() => return,
        }
        if !dir.is_online() {
            return;
        }
        let asked = Arc::clone(&dir);
        let reserve_bytes = context.config().ottla_disk_reserve_bytes;
        let look = move || look_at(&asked, reserve_bytes);
        // A panic was reported where it happened; the next query may succeed.
        let _ = dir.threads.jobs.run(look).await;
    }
}

fn look_at(dir: &LogDir, reserve_bytes: i64) {
    // If the query fails, the directory fails at its next write.
    let Ok(found) = ottla_sync::fs::space(&dir.path) else {
        return;
    };
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let usable = bytes(found.available_bytes);
    let path = dir.path.display();
    match dir
        .space
        .on_look(usable, bytes(found.total_bytes), reserve_bytes)
    {
        Some(true) => tracing::error!(
            dir = %path, usable, reserve_bytes,
            "the disk is full up to the reserve: appends are refused until there is space"
        ),
        Some(false) => {
            tracing::warn!(dir = %path, usable, "there is space again: appends are accepted");
        }
        None => {}
    }
}
