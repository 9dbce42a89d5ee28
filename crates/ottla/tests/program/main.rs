//! The program `ottla` from outside: its tools, its console and its logins, with the nodes that it
//! runs.
//!
//! One test program, because linking each of these files would take longer than compiling it. Tests
//! that change limits of their own process, measure, or take long are programs of their own.

mod acls;
mod admin_tools;
mod config_providers;
mod console_clients;
mod console_oidc;
mod damaged_logs;
mod measuring_tools;
mod oauth;
mod preflight;
mod sasl;
mod scripts;
mod tier_restore;
mod tools;
