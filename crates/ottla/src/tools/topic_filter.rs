//! Topic selection by regular expression, as in Kafka's tools.

use ottla_broker::is_internal_topic;
use regex::Regex;

/// A pattern that must match the whole topic name. Commas separate alternatives; blanks and
/// surrounding quotes are dropped, because patterns also come from properties files
/// (`org.apache.kafka.server.util.TopicFilter`).
pub(super) struct TopicFilter {
    pattern: Regex,
}

impl TopicFilter {
    pub(super) fn new(raw: &str) -> anyhow::Result<TopicFilter> {
        let text = raw.trim().replace(',', "|").replace(' ', "");
        let text = text.trim_matches(['"', '\'']);
        let pattern = Regex::new(&format!("^(?:{text})$"))
            .map_err(|_| anyhow::anyhow!("{text} is an invalid regex."))?;
        Ok(TopicFilter { pattern })
    }

    pub(super) fn all() -> TopicFilter {
        TopicFilter::new(".*").expect("the pattern is valid")
    }

    pub(super) fn is_allowed(&self, topic: &str, exclude_internal: bool) -> bool {
        self.pattern.is_match(topic) && !(exclude_internal && is_internal_topic(topic))
    }
}

#[cfg(test)]
mod tests {
    use super::TopicFilter;

    #[test]
    fn patterns_match_whole_names() {
        let allowed = |pattern: &str, topic: &str| {
            TopicFilter::new(pattern).unwrap().is_allowed(topic, false)
        };
        assert!(allowed("orders", "orders"));
        assert!(!allowed("orders", "orders-eu"));
        assert!(allowed("orders.*", "orders-eu"));
        assert!(allowed("\"a, b\"", "b"));
        assert!(!allowed("a,b", "ab"));
        assert!(TopicFilter::new("(").is_err());
    }

    #[test]
    fn internal_topics_can_be_excluded() {
        assert!(TopicFilter::all().is_allowed("__consumer_offsets", false));
        assert!(!TopicFilter::all().is_allowed("__consumer_offsets", true));
    }
}
