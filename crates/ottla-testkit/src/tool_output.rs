//! A tool of the binary that has ended: its exit status and its output.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::ottla_binary;

pub struct ToolOutput {
    line: String,
    /// -1 if a signal ended the tool.
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl ToolOutput {
    /// Runs the binary with these arguments and this standard input until it ends.
    pub fn of(arguments: &[&str], input: &str) -> ToolOutput {
        let mut child = Command::new(ottla_binary())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // A tool that fails may not read its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("the tool ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        ToolOutput {
            line: arguments.join(" "),
            status: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// The standard output of a tool, which must have succeeded.
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.status, 0, "{}:\n{}{}", self.line, self.out, self.err);
        self.out
    }

    /// The complete output of a tool, which must have failed.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_ne!(self.status, 0, "{}:\n{}{}", self.line, self.out, self.err);
        self.out + &self.err
    }

    /// The lines of standard output of a tool, which must have succeeded.
    #[track_caller]
    pub fn lines(&self) -> Vec<&str> {
        assert_eq!(self.status, 0, "{}:\n{}{}", self.line, self.out, self.err);
        self.out.lines().collect()
    }
}
