//! The memory of an [`OffsetMap`](super::offset_map::OffsetMap): zeroed slots, in huge pages where the kernel gives them.
//!
//! The slots are visited in no order, so in pages of 4 KiB nearly every visit also misses the processor's table of
//! pages, which costs more than the slot itself. The allocator of the process is told to stay away from huge pages,
//! because they keep memory that nobody uses; here all of it is used. docs/benchmarks.md has the figures.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};
use zerocopy::{FromBytes, IntoBytes};

/// A slot is the hash of a key and its offset, one more so that zeros are an empty slot.
pub(super) type Slot = [u64; 3];

/// A fixed number of slots; none by default.
#[derive(Default)]
pub(super) struct SlotTable(Option<MmapMut>);

impl SlotTable {
    /// So many empty slots. Ends the process where there is no memory for them, as every allocation does.
    pub(super) fn zeroed(slots: usize) -> SlotTable {
        let layout = Layout::array::<Slot>(slots).expect("a table that the memory bound allows");
        if layout.size() == 0 {
            return SlotTable::default();
        }
        let memory =
            MmapMut::map_anon(layout.size()).unwrap_or_else(|_| handle_alloc_error(layout));
        // A kernel without huge pages says so here, and the table is as good without them.
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
