//! Finds the members with the fewest and with the most partitions while partitions are assigned one
//! by one.
//!
//! The members are sorted by load. The members with the fewest partitions are a range at the front
//! with one common load: each gets one partition in turn, then the load of the whole range is one
//! higher, and the range is extended by the members after it with the same load. The range of the
//! members with the most partitions is the mirror image. A choice therefore needs no search and no
//! sorting. Source: `UniformHeterogeneousAssignmentBuilder.MemberAssignmentBalancer`.

/// Loads are given at the start. Each choice counts as a partition that is assigned or taken away.
#[derive(Debug, Default)]
pub(super) struct LoadLevels {
    /// Members with their initial loads, the lowest load first.
    sorted: Vec<(usize, usize)>,

    /// `..least_end` are the members with the fewest partitions.
    least_end: usize,
    least_level: i64,
    next_least: usize,

    /// `most_start..most_end` are the members with the most partitions, without those after them
    /// that have nothing to give.
    most_start: usize,
    most_end: usize,
    most_level: i64,
    /// One more than the index of the next member.
    next_most: usize,
}

impl LoadLevels {
    /// Starts again with at least one member. Returns the difference between the highest and the
    /// lowest load.
    pub(super) fn reset(&mut self, members: &[usize], load_of: &[usize]) -> usize {
        assert!(!members.is_empty(), "at least one member");
        self.sorted.clear();
        self.sorted
            .extend(members.iter().map(|member| (load_of[*member], *member)));
        self.sorted.sort_unstable();
        let (fewest, most) = (self.sorted[0].0, self.sorted[self.sorted.len() - 1].0);
        self.least_end = 0;
        self.least_level = fewest as i64 - 1;
        self.next_least = 0;
        self.most_start = self.sorted.len();
        self.most_end = self.sorted.len();
        self.most_level = most as i64 + 1;
        self.next_most = self.sorted.len();
        most - fewest
    }

    /// The member that gets the next partition.
    pub(super) fn take_least_loaded(&mut self) -> usize {
        if self.next_least >= self.least_end {
            self.least_level += 1;
            while self
                .sorted
                .get(self.least_end)
                .is_some_and(|(load, _)| *load as i64 == self.least_level)
            {
                self.least_end += 1;
            }
            self.next_least = 0;
        }
        let (_, member) = self.sorted[self.next_least];
        self.next_least += 1;
        member
    }

    /// The member that loses the next partition. `has_some` says whether a member has one to give.
    /// `None` if none has.
    pub(super) fn take_most_loaded(&mut self, has_some: impl Fn(usize) -> bool) -> Option<usize> {
        loop {
            let member = self.next_most_loaded()?;
            if has_some(member) {
                return Some(member);
            }
            // Swapped with the last of the range, and removed from it.
            self.most_end -= 1;
            self.sorted.swap(self.next_most, self.most_end);
        }
    }

    fn next_most_loaded(&mut self) -> Option<usize> {
        if self.next_most <= self.most_start {
            if self.most_end <= self.most_start && self.most_start > 0 {
                // The range is empty: continue with the members before it, whatever their load.
                self.most_level = self.sorted[self.most_start - 1].0 as i64;
            } else {
                self.most_level -= 1;
            }
            while self.most_start > 0
                && self.sorted[self.most_start - 1].0 as i64 == self.most_level
            {
                self.most_start -= 1;
            }
            self.next_most = self.most_end;
        }
        self.next_most = self.next_most.checked_sub(1)?;
        Some(self.sorted[self.next_most].1)
    }

    /// Whether no further move improves the balance.
    pub(super) fn is_balanced(&self) -> bool {
        self.most_level - self.least_level <= 1
    }
}
