//! `ottla server-start`: Kafka's `kafka-server-start.sh`.
//!
//! In the foreground it is `ottla server` with a required file; with `-daemon` the server runs in
//! the background with its output in the same file as with Kafka's script.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use clap::Args;

use crate::server::{self, ServerArgs};

/// Run a broker like kafka-server-start.sh: [-daemon] server.properties [--override key=value]…
#[derive(Args, Debug)]
pub struct ServerStartArgs {
    /// Run the server in the background, with its output in kafkaServer.out in the directory LOG_DIR.
    /// Kafka's spelling -daemon works too.
    #[arg(long)]
    daemon: bool,
    /// The name of that file, without its extension.
    #[arg(long, value_name = "NAME", default_value = "kafkaServer", hide = true)]
    name: String,
    /// Has no effect: there is no garbage collector.
    #[arg(long, hide = true)]
    loggc: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: ServerStartArgs, command_line: &[String]) -> ExitCode {
    if !args.server.names_a_file() {
        println!(
            "USAGE: {} [-daemon] server.properties [--override property=value]*",
            command_line.first().map_or("server-start", String::as_str)
        );
        return ExitCode::FAILURE;
    }
    if !args.daemon {
        return server::run(args.server);
    }
    match start_in_background(&args.name, command_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ottla: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Converts the options of Kafka's script (one hyphen and a word) to clap's form.
pub fn with_two_hyphens(mut arguments: Vec<String>) -> Vec<String> {
    let options = arguments.iter_mut().skip(2);
    for argument in options.take_while(|argument| argument.starts_with('-')) {
        if matches!(argument.as_str(), "-daemon" | "-loggc") {
            argument.insert(0, '-');
        }
    }
    arguments
}

fn start_in_background(name: &str, command_line: &[String]) -> anyhow::Result<()> {
    let directory = output_directory(
        std::env::var("LOG_DIR").ok(),
        command_line.first().map_or("", String::as_str),
    );
    std::fs::create_dir_all(&directory).with_context(|| {
        format!(
            "{}: cannot create the output directory; set LOG_DIR to another one",
            directory.display()
        )
    })?;
    let path = directory.join(format!("{name}.out"));
    let output = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(&path)
        .with_context(|| {
            format!(
                "{}: cannot write to it; set LOG_DIR to another directory",
                path.display()
            )
        })?;
    let binary = std::env::current_exe().context("cannot find the path of this binary")?;
    let mut server = Command::new(binary);
    server
        .arg("server")
        .args(server_arguments(command_line))
        .stdin(Stdio::null())
        .stdout(output.try_clone().context("the output file")?)
        .stderr(output);
    in_a_session_of_its_own(&mut server);
    let child = server.spawn().context("cannot start the server")?;
    eprintln!(
        "Started the server as process {}; its output is in {}.",
        child.id(),
        path.display()
    );
    Ok(())
}

/// Starts the command in a new session, so that it does not receive SIGHUP when the terminal
/// closes.
fn in_a_session_of_its_own(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe calls are permitted; setsid is one, and
    // converting its error to an `io::Error` neither allocates nor locks.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

/// As in Kafka's script: LOG_DIR, or the directory `logs` beside the script's directory.
fn output_directory(log_dir: Option<String>, script: &str) -> PathBuf {
    if let Some(log_dir) = log_dir.filter(|it| !it.is_empty()) {
        return log_dir.into();
    }
    match Path::new(script).parent() {
        Some(folder) if script.ends_with(".sh") => folder.join("..").join("logs"),
        _ => "logs".into(),
    }
}

/// The arguments after the script's options.
fn server_arguments(command_line: &[String]) -> Vec<String> {
    let mut arguments = command_line.iter().skip(2);
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--daemon" | "--loggc" => {}
            "--name" => drop(arguments.next()),
            name if name.starts_with("--name=") => {}
            _ => kept.push(argument.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn options_of_the_script_take_precedence_over_the_file() {
        let line = with_two_hyphens(words(&[
            "k.sh",
            "server-start",
            "-daemon",
            "s.properties",
            "--override",
            "x=-daemon",
            "--name=b",
            "--name",
            "c",
        ]));
        assert_eq!(line[2], "--daemon");
        assert_eq!(
            server_arguments(&line),
            ["s.properties", "--override", "x=-daemon"]
        );
    }

    #[test]
    fn output_goes_to_the_log_file_of_kafka() {
        assert_eq!(
            output_directory(None, "/opt/kafka/bin/kafka-server-start.sh"),
            Path::new("/opt/kafka/bin/../logs")
        );
        assert_eq!(output_directory(None, "ottla"), Path::new("logs"));
        assert_eq!(
            output_directory(Some("/var/log/kafka".into()), "ottla"),
            Path::new("/var/log/kafka")
        );
    }
}
