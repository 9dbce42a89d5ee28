//! Who of several members has the fewest partitions, and who the most, while partitions are handed out one by one.
//!
//! The members stand in the order of their loads. Those at the front that have the fewest are a range, all of one load:
//! each gets one partition in turn, then the whole range has one more, and takes in those behind it that have as many. The
//! range of those that have the most is its mirror image. So a choice costs no search and no sorting.
//! Source: `UniformHeterogeneousAssignmentBuilder.MemberAssignmentBalancer`.

/// Loads are given at the beginning, and each choice is taken for a partition that is given or taken.
#[derive(Debug, Default)]
pub(super) struct LoadLevels {
    /// Members with what they had at the beginning, fewest first.
    sorted: Vec<(usize, usize)>,

    /// `..least_end` are those with the fewest.
    least_end: usize,
    least_level: i64,
    next_least: usize,

    /// `most_start..most_end` are those with the most, without those behind that have nothing to give.
    most_start: usize,
    most_end: usize,
    most_level: i64,
    /// One more than the place of the next one.
    next_most: usize,
}

impl LoadLevels {
    /// Begins anew with at least one member. Returns how many partitions lie between the most and the fewest.
    pub(super) fn reset(&mut self, members: &[usize], load_of: &[usize]) -> usize {
        assert!(!members.is_empty(), "somebody takes what is handed out");
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

    /// Whom to give the next partition.
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

    /// From whom to take the next partition; `has_some` says who has one to give. `None` if nobody has.
    pub(super) fn take_most_loaded(&mut self, has_some: impl Fn(usize) -> bool) -> Option<usize> {
        loop {
            let member = self.next_most_loaded()?;
            if has_some(member) {
                return Some(member);
            }
            // Changes places with the last of the range, and falls out of it.
            self.most_end -= 1;
            self.sorted.swap(self.next_most, self.most_end);
        }
    }

    fn next_most_loaded(&mut self) -> Option<usize> {
        if self.next_most <= self.most_start {
            if self.most_end <= self.most_start && self.most_start > 0 {
                // All of the range fell out: go on with those before it, however few they have.
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

    /// Moving another partition would not make it better.
    pub(super) fn is_balanced(&self) -> bool {
        self.most_level - self.least_level <= 1
    }
}
