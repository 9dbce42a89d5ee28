//! The terminal that standard output goes to.

/// How many columns it has; `None` if standard output is no terminal, or does not say.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
