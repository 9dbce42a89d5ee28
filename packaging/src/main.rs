//! Builds and checks the packages: for Debian and Red Hat systems, and a container image, all from
//! one description of their contents. The checks unpack, install and start them.
//!
//! This is a separate program, so that `cargo xtask tidy` does not wait for its dependencies to
//! build. The product does not link any of this.

mod archive;
mod binary;
mod check;
mod contents;
mod deb;
mod image;
mod package;
mod rpm_package;
mod stamp;

use clap::Parser;

/// Packages of Ottla.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Write packages into target/packages: .deb and .rpm, or with --image an image for containers.
    Package(package::Options),
    /// Build the packages of a binary, unpack and install them below a directory, and start a node
    /// from them.
    CheckPackages(check::Options),
}

fn main() {
    let outcome = match Command::parse() {
        Command::Package(options) => package::run(&options),
        Command::CheckPackages(options) => check::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
