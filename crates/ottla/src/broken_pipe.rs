//! Closed output pipes: `ottla topics --list | head -1`.
//!
//! Rust ignores SIGPIPE, so `println!` fails and panics. The default action of the signal would end
//! the process silently, but also when a broker closes a connection: a vectored write to a socket
//! raises it as well.

/// The status with which a shell reports a process that SIGPIPE has ended.
const ENDED_BY_SIGPIPE: i32 = 128 + 13;

/// Makes the tool exit silently when its output pipe is closed, like other command-line tools.
///
/// Not for tools that must complete something first, and not for the server.
pub fn end_with_it() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().is_some_and(is_closed_output) {
            std::process::exit(ENDED_BY_SIGPIPE);
        }
        otherwise(panic);
    }));
}

/// Whether `println!` or `eprintln!` panics with this message because the reader of the output has
/// exited.
fn is_closed_output(message: &str) -> bool {
    message.starts_with("failed printing to std") && message.contains("Broken pipe")
}

#[cfg(test)]
mod tests {
    use super::is_closed_output;

    #[test]
    fn only_a_closed_output_is_ignored() {
        let closed = "failed printing to stdout: Broken pipe (os error 32)";
        assert!(is_closed_output(closed));
        let full = "failed printing to stdout: No space left on device (os error 28)";
        assert!(!is_closed_output(full));
        assert!(!is_closed_output("write to a broker: Broken pipe"));
    }
}
