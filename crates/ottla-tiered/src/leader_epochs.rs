//! Leader epochs and their start offsets, of a log and within a remote segment.
//!
//! Kafka: `LeaderEpochFileCache` (lookups), `LeaderEpochCheckpointFile` (the text, which is also
//! the leader epoch index of a remote segment), `RemoteLogManager.buildFilteredLeaderEpochMap`.

use std::fmt::Write;

use ottla_types::{LeaderEpoch, Offset};

/// One leader epoch and its first offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpochEntry {
    pub epoch: LeaderEpoch,
    pub start_offset: Offset,
}

impl EpochEntry {
    pub const fn new(epoch: i32, start_offset: i64) -> EpochEntry {
        EpochEntry {
            epoch: LeaderEpoch(epoch),
            start_offset: Offset(start_offset),
        }
    }
}

/// Entries with increasing epochs. The offsets also increase in the entries of a log; in the
/// entries of a record they are arbitrary.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

/// The text of a leader epoch checkpoint could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaderEpochsError {
    #[error("the leader epoch index is not UTF-8 text")]
    NotText,
    #[error("the leader epoch index has version {0:?}; version 0 is known")]
    UnknownVersion(String),
    #[error("the leader epoch index announces {0:?} entries, which is no count")]
    BadCount(String),
    #[error("the leader epoch index announces {announced} entries and has {found}")]
    WrongCount { announced: usize, found: usize },
    #[error("line {0:?} of the leader epoch index is not an epoch and an offset")]
    BadLine(String),
}

/// Of two entries of one epoch, the last one counts, as in Java's maps.
impl FromIterator<EpochEntry> for LeaderEpochs {
    fn from_iter<I: IntoIterator<Item = EpochEntry>>(entries: I) -> LeaderEpochs {
        let mut all: Vec<EpochEntry> = entries.into_iter().collect();
        all.sort_by_key(|entry| entry.epoch);
        let mut entries: Vec<EpochEntry> = Vec::with_capacity(all.len());
        for entry in all {
            match entries.last_mut() {
                Some(last) if last.epoch == entry.epoch => *last = entry,
                _ => entries.push(entry),
            }
        }
        LeaderEpochs { entries }
    }
}

impl<const N: usize> From<[(i32, i64); N]> for LeaderEpochs {
    fn from(entries: [(i32, i64); N]) -> LeaderEpochs {
        let entry = |(epoch, offset)| EpochEntry::new(epoch, offset);
        entries.into_iter().map(entry).collect()
    }
}

impl LeaderEpochs {
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    fn index_of(&self, epoch: LeaderEpoch) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&epoch, |it| it.epoch)
    }

    /// The entry of exactly this epoch.
    pub fn get(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        Some(self.entries[self.index_of(epoch).ok()?])
    }

    /// The next older entry.
    pub fn previous(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        let (Ok(index) | Err(index)) = self.index_of(epoch);
        Some(self.entries[index.checked_sub(1)?])
    }

    /// The next newer entry.
    pub fn next(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        let index = match self.index_of(epoch) {
            Ok(index) => index + 1,
            Err(index) => index,
        };
        self.entries.get(index).copied()
    }

    /// The last offset of `epoch` within a segment that ends at `end_offset` (inclusive).
    pub fn end_offset_within(&self, epoch: LeaderEpoch, end_offset: Offset) -> Offset {
        match self.next(epoch) {
            Some(next) => Offset(next.start_offset.0.wrapping_sub(1)),
            None => end_offset,
        }
    }

    /// The epoch of the record at `offset`, existing or future.
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        Some(self.entries[after.checked_sub(1)?].epoch)
    }

    /// The largest known epoch up to `epoch` and its end offset (exclusive); `None` where Kafka
    /// answers with an undefined epoch.
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch == LeaderEpoch::UNKNOWN {
            return None;
        }
        if self.latest().is_some_and(|latest| latest.epoch == epoch) {
            return Some((epoch, log_end_offset));
        }
        let next = self.next(epoch)?;
        let floor = self.get(epoch).or_else(|| self.previous(epoch));
        let found = floor.map_or(epoch, |floor| floor.epoch);
        Some((found, next.start_offset))
    }

    /// The entries of a segment: from `start_offset` (inclusive; the entry that contains it starts
    /// there) up to `end_offset` (exclusive). Without a start, all entries below the end.
    pub fn in_range(&self, start_offset: Option<Offset>, end_offset: Offset) -> LeaderEpochs {
        let mut range = self.clone();
        if let Some(start_offset) = start_offset {
            range.truncate_from_start(start_offset);
        }
        range.truncate_from_end(end_offset);
        range
    }

    /// Removes the entries that start at or after `end_offset`.
    pub fn truncate_from_end(&mut self, end_offset: Offset) {
        let kept = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        self.entries.truncate(kept);
    }

    /// Removes epochs that ended at or before `start_offset`; the one that contains it now starts
    /// there.
    pub fn truncate_from_start(&mut self, start_offset: Offset) {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        if let Some(first) = after.checked_sub(1) {
            self.entries.drain(..first);
            self.entries[0].start_offset = start_offset;
        }
    }

    /// Without the epochs that have no records: those whose successor starts at the same offset.
    pub fn without_empty(&self) -> LeaderEpochs {
        let is_empty = |index: usize, entry: &EpochEntry| {
            let next = self.entries.get(index + 1);
            next.is_some_and(|next| next.start_offset == entry.start_offset)
        };
        let kept = self.entries.iter().enumerate();
        let entries = kept
            .filter(|(index, entry)| !is_empty(*index, entry))
            .map(|(_, entry)| *entry)
            .collect();
        LeaderEpochs { entries }
    }

    /// The text of a leader epoch checkpoint: version 0, the number of entries, and a line with
    /// epoch and start offset for each.
    pub fn to_checkpoint(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            let _ = writeln!(text, "{} {}", entry.epoch, entry.start_offset);
        }
        text
    }

    /// Reads the text of a leader epoch checkpoint.
    pub fn from_checkpoint(text: &[u8]) -> Result<LeaderEpochs, LeaderEpochsError> {
        let text = std::str::from_utf8(text).map_err(|_| LeaderEpochsError::NotText)?;
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default();
        if version != "0" {
            return Err(LeaderEpochsError::UnknownVersion(version.to_owned()));
        }
        let count = lines.next().unwrap_or_default();
        let announced: usize = count
            .parse()
            .map_err(|_| LeaderEpochsError::BadCount(count.to_owned()))?;
        let mut entries = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let entry = parse_entry(line);
            entries.push(entry.ok_or_else(|| LeaderEpochsError::BadLine(line.to_owned()))?);
        }
        if entries.len() != announced {
            return Err(LeaderEpochsError::WrongCount {
                announced,
                found: entries.len(),
            });
        }
        Ok(entries.into_iter().collect())
    }
}

fn parse_entry(line: &str) -> Option<EpochEntry> {
    let mut fields = line.split_ascii_whitespace();
    let entry = EpochEntry::new(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    fields.next().is_none().then_some(entry)
}

#[cfg(test)]
mod tests {
    use ottla_types::{LeaderEpoch, Offset};

    use super::{EpochEntry, LeaderEpochs, LeaderEpochsError};

    #[test]
    fn lookups() {
        let epochs = LeaderEpochs::from([(0, 20), (1, 85), (3, 90), (4, 98)]);
        let epoch_for = |offset| epochs.epoch_for(Offset(offset)).map(|epoch| epoch.0);
        assert_eq!(epoch_for(19), None);
        assert_eq!(epoch_for(20), Some(0));
        assert_eq!(epoch_for(89), Some(1));
        assert_eq!(epoch_for(1000), Some(4));
        let end = |epoch| epochs.end_offset_for(LeaderEpoch(epoch), Offset(120));
        assert_eq!(end(-1), None);
        assert_eq!(end(2), Some((LeaderEpoch(1), Offset(90))));
        assert_eq!(end(4), Some((LeaderEpoch(4), Offset(120))));
        assert_eq!(end(5), None);
        let later = LeaderEpochs::from([(3, 90), (4, 98)]);
        let end = later.end_offset_for(LeaderEpoch(1), Offset(120));
        assert_eq!(end, Some((LeaderEpoch(1), Offset(90))));
        assert_eq!(
            epochs.previous(LeaderEpoch(3)),
            Some(EpochEntry::new(1, 85))
        );
        assert_eq!(epochs.next(LeaderEpoch(1)), Some(EpochEntry::new(3, 90)));
        assert_eq!(epochs.next(LeaderEpoch(4)), None);
    }

    #[test]
    fn the_entries_of_a_segment() {
        let epochs = LeaderEpochs::from([(0, 0), (2, 50), (5, 100)]);
        let range = |start, end| epochs.in_range(start, Offset(end));
        assert_eq!(
            range(Some(Offset(60)), 100),
            LeaderEpochs::from([(2, 60)]),
            "the first entry moves to the start"
        );
        assert_eq!(range(None, 100), LeaderEpochs::from([(0, 0), (2, 50)]));
        assert_eq!(
            range(Some(Offset(50)), 101),
            LeaderEpochs::from([(2, 50), (5, 100)])
        );
    }

    #[test]
    fn epochs_without_records_are_left_out() {
        let epochs = LeaderEpochs::from([(0, 0), (1, 10), (2, 10), (3, 10), (4, 20)]);
        assert_eq!(
            epochs.without_empty(),
            LeaderEpochs::from([(0, 0), (3, 10), (4, 20)])
        );
    }

    #[test]
    fn the_checkpoint_is_kafkas_text() {
        let epochs = LeaderEpochs::from([(0, 0), (7, 4711)]);
        assert_eq!(epochs.to_checkpoint(), "0\n2\n0 0\n7 4711\n");
        let read = |text: &str| LeaderEpochs::from_checkpoint(text.as_bytes());
        assert_eq!(read("0\n2\n0 0\n7 4711\n"), Ok(epochs));
        assert_eq!(read("0\n0\n"), Ok(LeaderEpochs::default()));
        assert_eq!(
            read("1\n0\n"),
            Err(LeaderEpochsError::UnknownVersion("1".to_owned()))
        );
        assert_eq!(
            read("0\n3\n0 0\n"),
            Err(LeaderEpochsError::WrongCount {
                announced: 3,
                found: 1
            })
        );
        assert_eq!(
            read("0\n1\n0 0 0\n"),
            Err(LeaderEpochsError::BadLine("0 0 0".to_owned()))
        );
        assert!(LeaderEpochs::from_checkpoint(&[0xff]).is_err());
    }
}
