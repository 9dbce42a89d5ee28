//! The native client: producer, consumer, admin.
