//! Finds the known name that is most similar to a mistyped one.

/// The most similar name, unless the distance is too large: one edit per five letters is allowed,
/// and at most four.
pub fn nearest_name<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let simplified = |name: &str| name.replace(['_', '-'], ".").to_ascii_lowercase();
    let limit = (given.len() / 5).clamp(1, 4);
    let given = simplified(given);
    names
        .into_iter()
        .map(|name| (distance(&given, &simplified(name)), name))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name)
}

/// The edit distance between two names: a missing, additional or different letter, or two exchanged
/// ones. Compares bytes, because names of settings and topics are ASCII.
fn distance(left: &str, right: &str) -> usize {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let is_same = left[row - 1] == right[column - 1];
            let mut least = (above[column - 1] + usize::from(!is_same))
                .min(above[column] + 1)
                .min(current[column - 1] + 1);
            let is_exchanged = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if is_exchanged {
                least = least.min(before[column - 2] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest_name};

    #[test]
    fn only_a_similar_name_is_suggested() {
        let names = ["Orders", "order-events", "payments"];
        assert_eq!(nearest_name("ordres", names), Some("Orders"));
        assert_eq!(nearest_name("order_event", names), Some("order-events"));
        assert_eq!(nearest_name("shipments", names), None);
        assert_eq!(nearest_name("orders", []), None);
    }

    #[test]
    fn each_kind_of_slip_counts_once() {
        for (left, right, slips) in [
            ("acks", "acks", 0),
            ("akcs", "acks", 1),
            ("ack", "acks", 1),
            ("acksx", "acks", 1),
            ("acls", "acks", 1),
            ("", "acks", 4),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(left, right), slips, "{left} {right}");
        }
    }
}
