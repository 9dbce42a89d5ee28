//! Whether output may be coloured.

/// <https://no-color.org>
pub fn are_allowed() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_refused && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}
