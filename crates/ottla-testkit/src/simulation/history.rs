//! What happened in a run, in the order in which it happened, for people: a line says when, who, what came in, and what
//! followed.
//!
//! Written only when somebody wants to read it, since a line costs more than what it tells of. A run is a function of its
//! seed, so a run that finds something is repeated with its history.

#[derive(Debug, Default)]
pub(crate) struct History {
    lines: Option<Vec<String>>,
}

/// What is longer says nothing more to people.
const LONGEST: usize = 600;

/// Types of numbers: the number says enough.
const NUMBERS: &[&str] = &[
    "BrokerEpoch",
    "BrokerId",
    "LeaderEpoch",
    "Offset",
    "PartitionEpoch",
    "PartitionIndex",
    "ProducerEpoch",
    "ProducerId",
    "RequestId",
    "Sequence",
    "Timestamp",
    "Uuid",
];

/// What is the same in every line, or nothing.
const NOISE: &[&str] = &[
    "RecordBatch { header: BatchHeader ",
    "attributes: Attributes(0x0000, none, CreateTime), ",
    "base_timestamp: 0, max_timestamp: 0, ",
    "batch_length: 49, ",
    "magic: 2, ",
    ", body: b\"\" }",
    ", unknown_tagged_fields: []",
    "throttle_time_ms: 0, ",
    "timeout_ms: 10000, ",
];

impl History {
    pub(crate) fn kept() -> History {
        History {
            lines: Some(Vec::new()),
        }
    }

    pub(crate) fn note(&mut self, now_ms: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let mut line = format!("{now_ms:>6} {}", shortened(line()));
            if line.len() > LONGEST {
                let end = (0..=LONGEST).rev().find(|&at| line.is_char_boundary(at));
                line.truncate(end.unwrap_or_default());
                line.push('…');
            }
            lines.push(line);
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// A debug form for people.
fn shortened(line: String) -> String {
    let mut short = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(at) = rest.find('(') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let name = NUMBERS.iter().find(|name| before.ends_with(**name));
        match (name, after.find(')')) {
            (Some(name), Some(end)) => {
                short.push_str(&before[..before.len() - name.len()]);
                short.push_str(&after[..end]);
                rest = &after[end + 1..];
            }
            _ => {
                short.push_str(before);
                short.push('(');
                rest = after;
            }
        }
    }
    short.push_str(rest);
    for noise in NOISE {
        short = short.replace(noise, "");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_their_types_and_the_rest_stays() {
        let line = "replica 0 Fetch(Order { leader: BrokerId(3), at: Some(Offset(-1)) }) -> []";
        let expected = "replica 0 Fetch(Order { leader: 3, at: Some(-1) }) -> []";
        assert_eq!(shortened(line.to_owned()), expected);
    }
}
