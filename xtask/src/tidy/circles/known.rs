//! The circles between modules that are still there, by crate and by the files in them. The list only ever gets shorter.

pub const KNOWN: &[(&str, &[&[&str]])] = &[(
    "crates/ottla-coordination",
    &[
        &[
            "src/share_groups.rs",
            "src/share_groups/led_partition.rs",
            "src/share_groups/led_partitions.rs",
            "src/share_groups/persister.rs",
            "src/share_groups/settings.rs",
            "src/share_groups/state.rs",
        ],
        &[
            "src/transactions.rs",
            "src/transactions/marker_sender.rs",
            "src/transactions/verifier.rs",
            "src/transactions/write_markers.rs",
        ],
    ],
)];
