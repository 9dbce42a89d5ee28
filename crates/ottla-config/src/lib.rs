//! Kafka's settings as data, the Java properties reader and the typed broker and topic configuration.
