//! Pure: the leader and follower roles of one partition.
