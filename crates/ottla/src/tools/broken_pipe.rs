//! What happens when nobody reads what a tool prints: `ottla topics --list | head -1`.

/// Lets the tool end where its output is cut off, silently and at once, as other command line tools do.
///
/// Rust ignores SIGPIPE, so that printing would fail, and panic, instead. Not for tools that have
/// something to bring to an end first, and not for the server, for which a peer that goes away is an
/// ordinary error.
pub(super) fn end_with_it() {
    // SAFETY: the call installs the default action, no handler of ours; it is made before any thread is
    // started, and nothing of the process depends on SIGPIPE being ignored from here on.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
