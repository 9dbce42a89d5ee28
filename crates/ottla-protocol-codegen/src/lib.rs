//! Reads Kafka's message schemas and generates the Rust code of `ottla-protocol`.
//!
//! There are two steps, with the [`schema`] model between them. `import` (a feature, used by `cargo
//! xtask codegen`) reads the schema JSON in Kafka's jars and prints it in the compact notation of
//! [`notation`]; that text is committed. [`rust::generate`] runs in the build script of
//! `ottla-protocol`, parses the notation and prints Rust. Kafka does the same in its `generator`
//! module (`org.apache.kafka.message.MessageDataGenerator`).

#[cfg(feature = "import")]
mod import;
pub mod names;
pub mod notation;
pub mod rust;
pub mod schema;

#[cfg(feature = "import")]
pub use import::{ImportError, import};
