//! Runs a tool and reports its errors.

use std::pin::{Pin, pin};
use std::process::ExitCode;

use ottla_client::ClientError;

use super::java_exceptions;

/// Inconsistent arguments, detected after the first requests.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);

/// Runs a tool that talks to a cluster.
pub(super) fn block_on<F: Future<Output = ExitCode>>(tool: F) -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let tool = pin!(tool);
    run_on(runtime.enable_all().build(), tool)
}

/// Runs a tool that processes a lot of data; responses are received on another thread.
pub(super) fn block_on_while_receiving<F: Future<Output = ExitCode>>(tool: F) -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let tool = pin!(tool);
    run_on(runtime.worker_threads(1).enable_all().build(), tool)
}

/// Takes a trait object, because each kind of runtime would get a copy of each tool.
fn run_on(
    runtime: std::io::Result<tokio::runtime::Runtime>,
    tool: Pin<&mut dyn Future<Output = ExitCode>>,
) -> ExitCode {
    match runtime {
        Ok(runtime) => runtime.block_on(tool),
        Err(error) => {
            eprintln!("the runtime cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

/// For tools that print errors to standard output after a text of their own, where scripts find
/// them.
pub(super) fn report_on_stdout(prefix: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{prefix}{}", message_of(&error));
            ExitCode::FAILURE
        }
    }
}

/// For tools that print the plain error to standard error.
pub(super) fn report_plainly(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// For tools that print errors to standard error, with Java's exception names for broker errors.
pub(super) fn report_on_stderr(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<ClientError>() {
                Some(cluster) if cluster.code().is_some() => {
                    eprintln!("{}", java_exceptions::shown(cluster));
                }
                _ => eprintln!("{error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}

/// The error message. For an error from the cluster, the cluster's message alone, as in Kafka's
/// tools.
pub(super) fn message_of(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ClientError>() {
        Some(cluster) => cluster.broker_message(),
        None => format!("{error:#}"),
    }
}
