//! Prints the table of APIs for COMPATIBILITY.md.

fn main() {
    print!("{}", ottla_broker::api_table_markdown());
}
