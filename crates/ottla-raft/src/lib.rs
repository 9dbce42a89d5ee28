//! Pure: KRaft consensus for the metadata log.
