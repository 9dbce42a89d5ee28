//! A list that is short in nearly all cases, and then needs no allocation of its own.
//!
//! A cluster has a few lists for each partition, so their headers and their places in memory count.

use std::fmt;
use std::ops::Deref;

/// An immutable list: up to `N` items in place, more of them on the heap.
#[derive(Clone)]
pub struct ShortList<T, const N: usize>(Items<T, N>);

#[derive(Clone)]
enum Items<T, const N: usize> {
    InPlace { len: u8, items: [T; N] },
    Boxed(Box<Boxed<T>>),
}

/// In a box of its own, because a pointer without a length lets the list itself be smaller.
#[derive(Clone)]
struct Boxed<T>(Box<[T]>);

impl<T, const N: usize> Deref for ShortList<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Items::InPlace { len, items } => &items[..usize::from(*len)],
            Items::Boxed(boxed) => &boxed.0[..],
        }
    }
}

impl<T: Copy + Default, const N: usize> From<&[T]> for ShortList<T, N> {
    fn from(list: &[T]) -> Self {
        const { assert!(N <= u8::MAX as usize, "the length is one byte") };
        if list.len() > N {
            return ShortList(Items::Boxed(Box::new(Boxed(list.into()))));
        }
        let mut items = [T::default(); N];
        items[..list.len()].copy_from_slice(list);
        ShortList(Items::InPlace {
            len: list.len() as u8,
            items,
        })
    }
}

impl<T: Copy + Default, const N: usize> From<Vec<T>> for ShortList<T, N> {
    fn from(list: Vec<T>) -> Self {
        ShortList::from(&list[..])
    }
}

impl<T: Copy + Default, const N: usize> FromIterator<T> for ShortList<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        ShortList::from(Vec::from_iter(items))
    }
}

impl<T: Copy + Default, const N: usize> Default for ShortList<T, N> {
    fn default() -> Self {
        ShortList::from(&[][..])
    }
}

impl<T: PartialEq, const N: usize> PartialEq for ShortList<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for ShortList<T, N> {}

impl<T: fmt::Debug, const N: usize> fmt::Debug for ShortList<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{BrokerId, DirectoryId};

    use super::*;

    #[test]
    fn a_list_has_its_items_wherever_they_are() {
        for count in 0..6 {
            let items: Vec<BrokerId> = (0..count).map(BrokerId).collect();
            let list: ShortList<BrokerId, 3> = items.iter().copied().collect();
            assert_eq!(list[..], items[..]);
            assert_eq!(list, list.clone());
            assert_eq!(format!("{list:?}"), format!("{items:?}"));
            let longer = [&items[..], &[BrokerId(9)]].concat();
            assert_ne!(list, ShortList::from(longer));
        }
    }

    #[test]
    fn lists_of_a_registration_are_small() {
        assert_eq!(size_of::<ShortList<BrokerId, 3>>(), 16);
        assert_eq!(size_of::<ShortList<DirectoryId, 1>>(), 24);
    }
}
