//! How the files of a partition are named: twenty digits of base offset and a suffix for the kind.
//!
//! Kafka: `LogFileUtils`.

use ottla_types::Offset;

pub const LOG_SUFFIX: &str = ".log";
pub const OFFSET_INDEX_SUFFIX: &str = ".index";
pub const TIME_INDEX_SUFFIX: &str = ".timeindex";
pub const TRANSACTION_INDEX_SUFFIX: &str = ".txnindex";
pub const PRODUCER_SNAPSHOT_SUFFIX: &str = ".snapshot";
/// Scheduled for unlinking; deleted at load.
pub const DELETED_SUFFIX: &str = ".deleted";
/// Incomplete output of the cleaner; deleted at load.
pub const CLEANED_SUFFIX: &str = ".cleaned";
/// Complete output of the cleaner; the replacement is finished at load.
pub const SWAP_SUFFIX: &str = ".swap";

pub const DELETE_DIR_SUFFIX: &str = "-delete";
pub const FUTURE_DIR_SUFFIX: &str = "-future";
pub const STRAY_DIR_SUFFIX: &str = "-stray";

/// `00000000000000000042.log` for offset 42 and `.log`.
pub fn file_name(base_offset: Offset, suffix: &str) -> String {
    format!("{:020}{suffix}", base_offset.0)
}

/// The offset before the first dot, or `None` if it is not digits only or exceeds the range of an
/// offset.
pub fn offset_from_file_name(name: &str) -> Option<Offset> {
    let digits = name.split('.').next()?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

#[cfg(test)]
mod tests {
    use ottla_types::Offset;

    use super::{file_name, offset_from_file_name};

    #[test]
    fn names_round_trip() {
        assert_eq!(file_name(Offset(42), ".log"), "00000000000000000042.log");
        for offset in [0, 42, i64::MAX] {
            let name = file_name(Offset(offset), ".timeindex.deleted");
            assert_eq!(offset_from_file_name(&name), Some(Offset(offset)));
        }
    }

    #[test]
    fn other_names_have_no_offset() {
        for name in [
            "",
            ".log",
            "leader-epoch-checkpoint",
            "-1.log",
            "+1.log",
            "99999999999999999999.log",
        ] {
            assert_eq!(offset_from_file_name(name), None, "{name}");
        }
    }
}
