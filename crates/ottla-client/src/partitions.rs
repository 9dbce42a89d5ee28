//! Partitions by topic name and number, as requests and responses have them: gathered by topic.

/// A partition by topic name and number.
pub(crate) type Partition = (String, i32);

/// Something of each partition, gathered by topic as far as partitions of one topic follow each other.
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

/// The first error of a response that has one for each partition; 0 without any.
pub(crate) fn first_error(codes: impl IntoIterator<Item = i16>) -> i16 {
    codes.into_iter().find(|code| *code != 0).unwrap_or(0)
}
