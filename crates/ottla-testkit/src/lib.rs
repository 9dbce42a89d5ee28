//! Cluster builder, simulator, checkers and peers, for tests only.
