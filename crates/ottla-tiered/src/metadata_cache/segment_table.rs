//! The segments of one partition, packed, found by their ID or by a slot.
//!
//! A segment takes 64 bytes, and a few more for what few segments have: custom metadata, several
//! leader epochs, or more than 2^32 offsets. Those are in a byte buffer that neighbouring segments
//! share. Slots are reused.

use bytes::Bytes;
use hashbrown::HashTable;
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

use crate::leader_epochs::{EpochEntry, LeaderEpochs};
use crate::remote_segment::{CustomMetadata, RemoteSegment};
use crate::segment_state::RemoteLogSegmentState;

/// The position of a segment in its table.
pub(super) type Slot = u32;

#[cfg(test)]
thread_local! {
    /// How often segments were looked at.
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

const CHUNK: usize = 64;
/// A chunk grows by this many segments, so that a partition with few of them stays small.
const GROWTH: usize = 16;

#[derive(Default)]
pub(super) struct SegmentTable {
    chunks: Vec<Chunk>,
    vacant: Vec<Slot>,
    by_id: HashTable<Slot>,
}

#[derive(Default)]
struct Chunk {
    entries: Vec<Entry>,
    /// The additional bytes of the entries that have some, each with its length before it.
    more: Vec<u8>,
    /// The bytes of `more` that no longer belong to an entry.
    unused: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    id: [u8; 16],
    start_offset: i64,
    max_timestamp: i64,
    event_timestamp: i64,
    /// The end offset minus the start offset, unless it is in `more`.
    last_delta: u32,
    segment_size_bytes: i32,
    broker_id: i32,
    /// The only epoch, which starts with the segment, unless the epochs are in `more`.
    epoch: i32,
    more_at: u32,
    /// Two bits for the state, then the flags below.
    flags: u8,
}

const _: () = assert!(size_of::<Entry>() == 64);

const STATE: u8 = 0b11;
const TXN_INDEX_EMPTY: u8 = 1 << 2;
const HAS_MORE: u8 = 1 << 3;
const VACANT: u8 = 1 << 4;

/// The contents of the additional bytes of an entry, in this order.
const MORE_END: u8 = 1;
const MORE_EPOCHS: u8 = 2;
const MORE_CUSTOM_METADATA: u8 = 4;

fn hash_of(id: &[u8; 16]) -> u64 {
    let id = u128::from_be_bytes(*id);
    // IDs are random, but for the bits that mark a UUID of version 4; those are spread over others.
    ((id >> 64) as u64 ^ id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl SegmentTable {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn find(&self, id: Uuid) -> Option<Slot> {
        let is_it = |slot: &Slot| self.entry(*slot).id == id.0;
        self.by_id.find(hash_of(&id.0), is_it).copied()
    }

    /// All segments, by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = RemoteSegment> {
        self.chunks.iter().flat_map(|chunk| {
            let entries = chunk.entries.iter();
            let taken = entries.filter(|entry| entry.flags & VACANT == 0);
            taken.map(|entry| {
                #[cfg(test)]
                LOOKS.set(LOOKS.get() + 1);
                entry.unpack(chunk.more_of(entry))
            })
        })
    }

    fn entry(&self, slot: Slot) -> &Entry {
        self.entry_and_more(slot).0
    }

    /// An entry, and its additional bytes.
    fn entry_and_more(&self, slot: Slot) -> (&Entry, &[u8]) {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let chunk = &self.chunks[slot as usize / CHUNK];
        let entry = &chunk.entries[slot as usize % CHUNK];
        (entry, chunk.more_of(entry))
    }

    pub(super) fn get(&self, slot: Slot) -> RemoteSegment {
        let (entry, more) = self.entry_and_more(slot);
        entry.unpack(more)
    }

    pub(super) fn state(&self, slot: Slot) -> RemoteLogSegmentState {
        self.entry(slot).state()
    }

    pub(super) fn start_offset(&self, slot: Slot) -> Offset {
        Offset(self.entry(slot).start_offset)
    }

    /// The first offset of `epoch` in the segment; its start if it does not have the epoch.
    pub(super) fn start_offset_of(&self, slot: Slot, epoch: LeaderEpoch) -> Offset {
        let (entry, more) = self.entry_and_more(slot);
        let more = More::read(more);
        let found = more.epochs.and_then(|epochs| {
            let mut entries = epoch_entries(epochs);
            entries.find(|entry| entry.epoch == epoch)
        });
        found.map_or(Offset(entry.start_offset), |found| found.start_offset)
    }

    /// The last offset of `epoch` in the segment.
    pub(super) fn end_offset_of(&self, slot: Slot, epoch: LeaderEpoch) -> Offset {
        let (entry, more) = self.entry_and_more(slot);
        let more = More::read(more);
        match more.epochs {
            None => entry.end_offset(&more),
            Some(epochs) => {
                let epochs: LeaderEpochs = epoch_entries(epochs).collect();
                epochs.end_offset_within(epoch, entry.end_offset(&more))
            }
        }
    }

    pub(super) fn max_timestamp(&self, slot: Slot) -> Timestamp {
        Timestamp(self.entry(slot).max_timestamp)
    }

    /// The size of the segment if it has a single epoch, which starts with it.
    pub(super) fn size_of_only_epoch(&self, slot: Slot) -> Option<u64> {
        let (entry, more) = self.entry_and_more(slot);
        let has_only_epoch = More::read(more).epochs.is_none();
        has_only_epoch.then(|| u64::try_from(entry.segment_size_bytes).unwrap_or(0))
    }

    /// Adds a segment whose ID is new.
    pub(super) fn insert(&mut self, segment: &RemoteSegment) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| self.push_vacant());
        self.write(slot, segment);
        let chunks = &self.chunks;
        let id_of = |slot: &Slot| {
            let slot = *slot as usize;
            hash_of(&chunks[slot / CHUNK].entries[slot % CHUNK].id)
        };
        self.by_id
            .insert_unique(hash_of(&segment.id.0), slot, id_of);
        slot
    }

    fn push_vacant(&mut self) -> Slot {
        if self
            .chunks
            .last()
            .is_none_or(|it| it.entries.len() == CHUNK)
        {
            self.chunks.push(Chunk::default());
        }
        let chunk_index = self.chunks.len() - 1;
        let chunk = &mut self.chunks[chunk_index];
        if chunk.entries.len() == chunk.entries.capacity() {
            chunk.entries.reserve_exact(GROWTH);
        }
        chunk.entries.push(Entry::VACANT);
        let slot = chunk_index * CHUNK + chunk.entries.len() - 1;
        Slot::try_from(slot).expect("a partition has fewer than 2^32 segments")
    }

    /// Writes a segment over the one in the slot, which has the same ID or none.
    pub(super) fn write(&mut self, slot: Slot, segment: &RemoteSegment) {
        let chunk = &mut self.chunks[slot as usize / CHUNK];
        let index = slot as usize % CHUNK;
        chunk.release(index);
        let (mut entry, more) = Entry::pack(segment);
        if !more.is_empty() {
            entry.flags |= HAS_MORE;
            entry.more_at = chunk.append(&more);
        }
        chunk.entries[index] = entry;
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let id = self.entry(slot).id;
        if let Ok(found) = self.by_id.find_entry(hash_of(&id), |it| *it == slot) {
            found.remove();
        }
        let chunk = &mut self.chunks[slot as usize / CHUNK];
        let index = slot as usize % CHUNK;
        chunk.release(index);
        chunk.entries[index] = Entry::VACANT;
        self.vacant.push(slot);
    }
}

impl Chunk {
    /// The additional bytes of an entry, without their length.
    fn more_of(&self, entry: &Entry) -> &[u8] {
        if entry.flags & HAS_MORE == 0 {
            return &[];
        }
        let mut rest = &self.more[entry.more_at as usize..];
        let length = read_varint(&mut rest) as usize;
        &rest[..length]
    }

    fn release(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if entry.flags & HAS_MORE == 0 {
            return;
        }
        let mut rest = &self.more[entry.more_at as usize..];
        let before = rest.len();
        let length = read_varint(&mut rest) as usize;
        self.unused += before - rest.len() + length;
        entry.flags &= !HAS_MORE;
        if self.unused > self.more.len() / 2 {
            self.compact();
        }
    }

    /// Copies the bytes that still belong to an entry into a new buffer.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.more);
        self.unused = 0;
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            if entry.flags & HAS_MORE == 0 {
                continue;
            }
            let mut rest = &old[entry.more_at as usize..];
            let length = read_varint(&mut rest) as usize;
            self.entries[index].more_at = self.append(&rest[..length]);
        }
    }

    fn append(&mut self, more: &[u8]) -> u32 {
        let at = u32::try_from(self.more.len()).expect("64 segments have less than 4 GiB");
        let needed = more.len() + 5;
        if self.more.capacity() - self.more.len() < needed {
            self.more.reserve_exact(needed.max(self.more.len() / 8));
        }
        write_varint(&mut self.more, more.len() as u64);
        self.more.extend_from_slice(more);
        at
    }
}

impl Entry {
    const VACANT: Entry = Entry {
        id: [0; 16],
        start_offset: 0,
        max_timestamp: 0,
        event_timestamp: 0,
        last_delta: 0,
        segment_size_bytes: 0,
        broker_id: 0,
        epoch: 0,
        more_at: 0,
        flags: VACANT,
    };

    fn state(&self) -> RemoteLogSegmentState {
        RemoteLogSegmentState::from_id((self.flags & STATE) as i8)
            .expect("two bits are one of four states")
    }

    /// The entry and its additional bytes.
    fn pack(segment: &RemoteSegment) -> (Entry, Vec<u8>) {
        let mut more = vec![0];
        let delta = segment.end_offset.0.wrapping_sub(segment.start_offset.0);
        let last_delta = u32::try_from(delta).unwrap_or_else(|_| {
            more[0] |= MORE_END;
            more.extend(segment.end_offset.0.to_le_bytes());
            0
        });
        let epochs = segment.segment_leader_epochs.entries();
        let epoch = match epochs {
            [only] if only.start_offset == segment.start_offset => only.epoch.0,
            _ => {
                more[0] |= MORE_EPOCHS;
                write_varint(&mut more, epochs.len() as u64);
                for entry in epochs {
                    more.extend(entry.epoch.0.to_le_bytes());
                    more.extend(entry.start_offset.0.to_le_bytes());
                }
                0
            }
        };
        if let Some(CustomMetadata(bytes)) = &segment.custom_metadata {
            more[0] |= MORE_CUSTOM_METADATA;
            more.extend_from_slice(bytes);
        }
        if more[0] == 0 {
            more.clear();
        }
        let txn_index_empty = if segment.is_txn_index_empty {
            TXN_INDEX_EMPTY
        } else {
            0
        };
        let entry = Entry {
            id: segment.id.0,
            start_offset: segment.start_offset.0,
            max_timestamp: segment.max_timestamp.0,
            event_timestamp: segment.event_timestamp.0,
            last_delta,
            segment_size_bytes: segment.segment_size_bytes,
            broker_id: segment.broker_id.0,
            epoch,
            more_at: 0,
            flags: segment.state.id() as u8 | txn_index_empty,
        };
        (entry, more)
    }

    fn end_offset(&self, more: &More<'_>) -> Offset {
        more.end_offset
            .unwrap_or_else(|| Offset(self.start_offset).plus(i64::from(self.last_delta)))
    }

    fn unpack(&self, more: &[u8]) -> RemoteSegment {
        let more = More::read(more);
        let only = || LeaderEpochs::from([(self.epoch, self.start_offset)]);
        RemoteSegment {
            id: Uuid(self.id),
            start_offset: Offset(self.start_offset),
            end_offset: self.end_offset(&more),
            max_timestamp: Timestamp(self.max_timestamp),
            broker_id: BrokerId(self.broker_id),
            event_timestamp: Timestamp(self.event_timestamp),
            segment_size_bytes: self.segment_size_bytes,
            custom_metadata: more
                .custom_metadata
                .map(|bytes| CustomMetadata(Bytes::copy_from_slice(bytes))),
            state: self.state(),
            segment_leader_epochs: more
                .epochs
                .map_or_else(only, |epochs| epoch_entries(epochs).collect()),
            is_txn_index_empty: self.flags & TXN_INDEX_EMPTY != 0,
        }
    }
}

/// The additional bytes of an entry, parsed.
#[derive(Default)]
struct More<'a> {
    end_offset: Option<Offset>,
    /// Twelve bytes for each entry.
    epochs: Option<&'a [u8]>,
    custom_metadata: Option<&'a [u8]>,
}

impl<'a> More<'a> {
    fn read(bytes: &'a [u8]) -> More<'a> {
        let Some((&has, mut rest)) = bytes.split_first() else {
            return More::default();
        };
        let mut more = More::default();
        if has & MORE_END != 0 {
            let (end_offset, after) = rest.split_at(8);
            more.end_offset = Some(Offset(read_i64(end_offset)));
            rest = after;
        }
        if has & MORE_EPOCHS != 0 {
            let count = read_varint(&mut rest) as usize;
            let (epochs, after) = rest.split_at(count * 12);
            more.epochs = Some(epochs);
            rest = after;
        }
        if has & MORE_CUSTOM_METADATA != 0 {
            more.custom_metadata = Some(rest);
        }
        more
    }
}

fn epoch_entries(bytes: &[u8]) -> impl Iterator<Item = EpochEntry> {
    bytes.chunks_exact(12).map(|entry| {
        let epoch = entry[..4].try_into().expect("four bytes");
        EpochEntry::new(i32::from_le_bytes(epoch), read_i64(&entry[4..]))
    })
}

fn read_i64(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    let mut shift = 0;
    loop {
        let (first, rest) = bytes.split_first().expect("a number that was written here");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
        shift += 7;
    }
}
