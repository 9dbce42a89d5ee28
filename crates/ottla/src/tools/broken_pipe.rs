//! Closed output pipes: `ottla topics --list | head -1`.

/// Makes the tool exit silently when its output pipe is closed, like other command-line tools.
///
/// Rust ignores SIGPIPE, so printing would fail and panic. Not for tools that must complete
/// something first, and not for the server, for which a closed connection is an ordinary error.
pub(super) fn end_with_it() {
    // SAFETY: the call installs the default action, not a handler; it is made before any thread is
    // started, and nothing in the process depends on SIGPIPE being ignored afterwards.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
