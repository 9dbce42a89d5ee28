//! Output that cannot be written: a closed pipe (`ottla topics --list | head -1`), a full disk.
//!
//! Rust ignores SIGPIPE, so `println!` fails and panics. The default action of the signal would end
//! the process silently, but also when a broker closes a connection: a vectored write to a socket
//! raises it as well.

use crate::output_lines::print_error_line;

/// The status with which a shell reports a process that SIGPIPE has ended.
const ENDED_BY_SIGPIPE: i32 = 128 + 13;

/// Makes the tool exit when its output cannot be written, like other command-line tools: silently
/// if the pipe is closed, otherwise with the reason.
///
/// Not for tools that must complete something first, and not for the server.
pub fn end_with_it() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match panic.payload_as_str().and_then(unwritten) {
            Some(reason) if reason.contains("Broken pipe") => {
                std::process::exit(ENDED_BY_SIGPIPE);
            }
            Some(reason) => {
                print_error_line(format_args!("ottla: cannot write the output: {reason}"));
                std::process::exit(1);
            }
            None => otherwise(panic),
        }
    }));
}

/// The reason, if `println!` or `eprintln!` panics with this message.
fn unwritten(message: &str) -> Option<&str> {
    let (_, reason) = message
        .strip_prefix("failed printing to std")?
        .split_once(": ")?;
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::unwritten;

    #[test]
    fn only_output_that_cannot_be_written_has_a_reason() {
        let closed = "failed printing to stdout: Broken pipe (os error 32)";
        assert_eq!(unwritten(closed), Some("Broken pipe (os error 32)"));
        assert_eq!(unwritten("write to a broker: Broken pipe"), None);
    }
}
