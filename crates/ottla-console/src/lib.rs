//! The console: a web page and its JSON API, for every cluster that speaks Kafka's protocol.
//!
//! `openapi.yaml` is the contract of the API.
