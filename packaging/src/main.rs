//! What people install: packages for Debian and for Red Hat's kin, and an image for containers, made from one description of what is in them, and the
//! checks that unpack, install and start them.
//!
//! A program of its own, so that nobody waits for its libraries who wants `cargo xtask tidy`. Nothing in here is linked into
//! the product.

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
    /// Make the packages of a binary, unpack and install them below a directory, and start what is in them.
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
