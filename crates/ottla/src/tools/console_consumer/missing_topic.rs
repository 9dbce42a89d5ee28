//! The warning about a topic that does not exist.

use ottla_client::{Client, ClientError};
use ottla_config::nearest_name;

/// Prints the warning if the topic does not exist. `may_create`: the client asks the broker to
/// create it.
pub(in crate::tools) async fn warn(
    client: &Client,
    topic: &str,
    may_create: bool,
) -> Result<(), ClientError> {
    let names = [topic.to_owned()];
    let metadata = client.refresh_metadata(Some(&names), false).await?;
    if metadata.topics.contains_key(topic) {
        return Ok(());
    }
    let metadata = client.refresh_metadata(None, false).await?;
    let topics = metadata.topics.values().filter(|it| !it.is_internal);
    let names = topics.map(|it| it.name.as_str());
    eprintln!(
        "WARN {}",
        sentence(topic, nearest_name(topic, names), may_create)
    );
    Ok(())
}

fn sentence(topic: &str, similar: Option<&str>, may_create: bool) -> String {
    let similar = similar.map_or(String::new(), |name| format!("; did you mean {name}?"));
    let stop = if similar.is_empty() { "." } else { "" };
    let next = if may_create {
        "It is created unless the broker refuses (auto.create.topics.enable=false); \
         --command-property allow.auto.create.topics=false prevents that."
    } else {
        "Waiting for it."
    };
    format!("topic {topic} does not exist{similar}{stop} {next}")
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn a_similar_name_is_suggested() {
        assert_eq!(
            sentence("ordres", Some("orders"), false),
            "topic ordres does not exist; did you mean orders? Waiting for it."
        );
        let text = sentence("x", None, true);
        assert!(
            text.starts_with("topic x does not exist. It is created"),
            "{text}"
        );
    }
}
