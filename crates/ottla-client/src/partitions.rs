//! Partitions by topic name and number, and their grouping by topic in requests and responses.

/// A partition by topic name and number.
pub(crate) type Partition = (String, i32);

/// Groups the items of partitions by topic, as far as partitions of one topic are adjacent.
pub(crate) fn by_topic<'a, T>(
    partitions: impl IntoIterator<Item = (&'a Partition, T)>,
) -> Vec<(&'a str, Vec<T>)> {
    let mut topics: Vec<(&str, Vec<T>)> = Vec::new();
    for ((topic, _), of_partition) in partitions {
        match topics.last_mut().filter(|(last, _)| last == topic) {
            Some((_, last)) => last.push(of_partition),
            None => topics.push((topic, vec![of_partition])),
        }
    }
    topics
}

/// The reverse: the partitions of topics.
pub(crate) fn partitions_of<'a>(
    topics: impl IntoIterator<Item = (&'a str, &'a [i32])>,
) -> Vec<Partition> {
    let topics = topics.into_iter();
    topics
        .flat_map(|(topic, numbers)| numbers.iter().map(|number| (topic.to_owned(), *number)))
        .collect()
}

/// The first error code of a response with one per partition; 0 if there is none.
pub(crate) fn first_error(codes: impl IntoIterator<Item = i16>) -> i16 {
    codes.into_iter().find(|code| *code != 0).unwrap_or(0)
}
