//! The memory of an [`OffsetMap`](super::offset_map::OffsetMap): zeroed slots, in huge pages if the
//! kernel provides them.
//!
//! Slots are accessed at random. With pages of 4 KiB nearly every access also misses the TLB, which
//! costs more than the slot itself. The process's allocator avoids huge pages, because they retain
//! unused memory; here all of it is used. docs/benchmarks.md has the figures.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};
use zerocopy::{FromBytes, IntoBytes};

/// A key's hash and its offset plus one, so that zeros are an empty slot.
pub(super) type Slot = [u64; 3];

/// A fixed number of slots; none by default.
#[derive(Default)]
pub(super) struct SlotTable(Option<MmapMut>);

impl SlotTable {
    /// `slots` empty slots. Aborts if there is no memory for them, like every allocation.
    pub(super) fn zeroed(slots: usize) -> SlotTable {
        let layout = Layout::array::<Slot>(slots).expect("a table that the memory bound allows");
        if layout.size() == 0 {
            return SlotTable::default();
        }
        let memory =
            MmapMut::map_anon(layout.size()).unwrap_or_else(|_| handle_alloc_error(layout));
        // A kernel without huge pages refuses this; the table works without them.
        let _ = memory.advise(Advice::HugePage);
        SlotTable(Some(memory))
    }
}

impl Deref for SlotTable {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        let Some(memory) = &self.0 else { return &[] };
        <[Slot]>::ref_from_bytes(memory)
            .expect("pages are aligned, and their length is that of slots")
    }
}

impl DerefMut for SlotTable {
    fn deref_mut(&mut self) -> &mut [Slot] {
        let Some(memory) = &mut self.0 else {
            return &mut [];
        };
        <[Slot]>::mut_from_bytes(memory.as_mut_bytes())
            .expect("pages are aligned, and their length is that of slots")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_as_many_empty_slots_as_were_asked_for() {
        for slots in [0, 1, 4096, 100_003] {
            let mut table = SlotTable::zeroed(slots);
            assert_eq!(table.len(), slots);
            assert!(table.iter().all(|slot| *slot == [0; 3]));
            if let Some(last) = table.last_mut() {
                *last = [1, 2, 3];
            }
            assert_eq!(table.last().copied(), (slots > 0).then_some([1, 2, 3]));
        }
    }
}
