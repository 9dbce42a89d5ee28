//! The iteration order of Java's hash maps and priority queues.
//!
//! Where Kafka's result depends on such an order (which of two equally loaded processes gets a
//! task, which topic an error names), it is part of the behaviour: with the same order, the same
//! input gives the same assignment. Source: `java.util.HashMap`, `java.util.PriorityQueue`.

pub(crate) use crate::java_hash::string_hash_code;

/// The default table size of a `HashMap`.
pub(crate) const DEFAULT_CAPACITY: usize = 16;

/// The order of the keys of a `HashMap`, given in insertion order. The table was created for
/// `initial_capacity` keys, and held at most `most` keys at a time. `hash_code` is Java's.
///
/// Java turns a bucket with eight or more keys into a tree, whose root then comes first. That is
/// not modelled.
pub(crate) fn hash_map_order<T>(
    keys: impl IntoIterator<Item = T>,
    hash_code: impl Fn(&T) -> i32,
    initial_capacity: usize,
    most: usize,
) -> Vec<T> {
    let mut capacity = initial_capacity.max(1).next_power_of_two();
    while most > capacity * 3 / 4 {
        capacity *= 2;
    }
    let bucket = |key: &T| {
        let hash = hash_code(key) as u32;
        (hash ^ (hash >> 16)) as usize & (capacity - 1)
    };
    let mut keys: Vec<T> = keys.into_iter().collect();
    keys.sort_by_key(bucket);
    keys
}

/// The order of a `HashMap` or `HashSet` that started empty and only grew.
pub(crate) fn default_hash_map_order<T>(
    keys: impl IntoIterator<Item = T>,
    hash_code: impl Fn(&T) -> i32,
) -> Vec<T> {
    let keys: Vec<T> = keys.into_iter().collect();
    let most = keys.len();
    hash_map_order(keys, hash_code, DEFAULT_CAPACITY, most)
}

/// A queue whose head is the least element; among equals, the same one as in Java's
/// `PriorityQueue`. Each element is kept with its load at the time of insertion.
#[derive(Debug)]
pub(crate) struct PriorityQueue<L> {
    heap: Vec<(L, usize)>,
}

impl<L: PartialOrd + Copy> PriorityQueue<L> {
    pub(crate) fn new() -> Self {
        PriorityQueue { heap: Vec::new() }
    }

    pub(crate) fn push(&mut self, load: L, element: usize) {
        let mut at = self.heap.len();
        self.heap.push((load, element));
        while at > 0 {
            let parent = (at - 1) / 2;
            if load >= self.heap[parent].0 {
                break;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        if self.heap.is_empty() {
            return None;
        }
        let (_, head) = self.heap.swap_remove(0);
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                break;
            }
            let right_is_less = right < self.heap.len() && self.heap[left].0 > self.heap[right].0;
            let child = if right_is_less { right } else { left };
            if self.heap[at].0 <= self.heap[child].0 {
                break;
            }
            self.heap.swap(at, child);
            at = child;
        }
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::{PriorityQueue, default_hash_map_order, hash_map_order, string_hash_code};

    /// The expected orders were printed by a JVM.
    #[test]
    fn keys_come_in_the_order_of_javas_hash_map() {
        let names = ["member-1", "member-2", "member-3", "alpha", "beta", "gamma"];
        assert_eq!(
            default_hash_map_order(names, |name| string_hash_code(name)),
            ["member-1", "member-2", "alpha", "member-3", "beta", "gamma"]
        );
        assert_eq!(
            hash_map_order(
                names,
                |name| string_hash_code(name),
                names.len(),
                names.len()
            ),
            ["member-3", "member-1", "member-2", "beta", "gamma", "alpha"]
        );
        // The thirteenth key doubles the table.
        let numbers: Vec<String> = (0..15).map(|number| number.to_string()).collect();
        assert_eq!(
            default_hash_map_order(numbers, |number| string_hash_code(number)).join(" "),
            "11 12 13 14 0 1 2 3 4 5 6 7 8 9 10"
        );
    }

    #[test]
    fn equals_come_in_the_order_of_javas_priority_queue() {
        let mut queue = PriorityQueue::new();
        let mut loads = [3, 1, 2, 1, 3, 1, 2, 1];
        for (element, load) in loads.iter().enumerate() {
            queue.push(*load, element);
        }
        let mut order = Vec::new();
        for _ in 0..12 {
            let head = queue.pop().expect("nothing was taken out for good");
            loads[head] += 1;
            queue.push(loads[head], head);
            order.push(head);
        }
        assert_eq!(order, [1, 3, 7, 5, 7, 5, 1, 3, 2, 6, 2, 6]);
        for _ in loads {
            assert!(queue.pop().is_some());
        }
        assert_eq!(queue.pop(), None);
    }
}
