//! A check and its result.

/// The severity of a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Level {
    Good,
    Warning,
    Problem,
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Good => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }

    pub(super) fn colour(self) -> &'static str {
        match self {
            Level::Good => "32",
            Level::Warning => "1;33",
            Level::Problem => "1;31",
        }
    }
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) level: Level,
    /// Such as `open files` or `disk /var/lib/ottla`.
    pub(super) subject: String,
    pub(super) what: String,
    /// The command or setting that fixes the problem.
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn good(subject: impl Into<String>, what: impl Into<String>) -> Check {
        Check {
            level: Level::Good,
            subject: subject.into(),
            what: what.into(),
            remedy: None,
        }
    }

    pub(super) fn warning(
        subject: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check {
            level: Level::Warning,
            remedy: Some(remedy.into()),
            ..Check::good(subject, what)
        }
    }

    pub(super) fn problem(
        subject: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check {
            level: Level::Problem,
            ..Check::warning(subject, what, remedy)
        }
    }
}

/// A title and its checks.
pub(super) type Section = (&'static str, Vec<Check>);

/// Formats bytes, such as `12.5 GB`.
pub(super) fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
