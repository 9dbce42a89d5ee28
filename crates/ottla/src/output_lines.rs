//! Lines on standard output and standard error of a process that continues without a reader.
//!
//! `println!` and `eprintln!` panic if the write fails, for example because the reader of a pipe
//! has exited. A server must keep running: here a line that cannot be written is dropped.

use std::fmt::Display;
use std::io::Write;

pub fn print_line(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub fn print_error_line(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
