//! Kafka's scripts: the command that implements each, and how a script's command line is
//! translated.
//!
//! The binary acts as the script by whose name it is called, so a folder with links (`ottla
//! install-scripts`) replaces Kafka's `bin` folder. The table is the single source for this, for
//! `kafka-run-class.sh`, and for the table in `COMPATIBILITY.md`.

pub mod environment;
pub mod install;
pub mod server_start;
pub mod server_stop;
mod table;

pub use table::{Outcome, SCRIPTS, Script, markdown};

/// The interpretation of a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// One of the binary's own command lines.
    As(Vec<String>),
    /// A script that is not supported. The sentence gives the reason and the replacement.
    NotServed(String),
}

/// Translates the command line to the binary's own: if the binary is called by the name of one of
/// Kafka's scripts, the corresponding command is inserted before the script's arguments.
pub fn called(mut arguments: Vec<String>) -> Called {
    let name = script_name(arguments.first().map_or("", String::as_str)).to_owned();
    if name == "kafka-run-class" {
        return run_class(arguments);
    }
    match find(&name) {
        Some(script) => match script.outcome {
            Outcome::Serves(command, _) => {
                arguments.insert(1, command.to_owned());
                Called::As(arguments)
            }
            Outcome::NotServed(reason) => Called::NotServed(format!(
                "{}.sh is not supported: {reason}. {}",
                script.name,
                served_list()
            )),
        },
        None if ["kafka-", "connect-", "zookeeper-"]
            .iter()
            .any(|prefix| name.starts_with(prefix)) =>
        {
            Called::NotServed(format!(
                "{name} is not a script of Apache Kafka 4.3. {}",
                served_list()
            ))
        }
        None => Called::As(arguments),
    }
}

/// `/opt/kafka/bin/kafka-topics.sh` -> `kafka-topics`
fn script_name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".sh").unwrap_or(name)
}

/// Whether this is the name of a script, with `.sh` or without.
pub fn is_script(name: &str) -> bool {
    find(script_name(name)).is_some()
}

fn find(name: &str) -> Option<&'static Script> {
    SCRIPTS.iter().find(|script| script.name == name)
}

fn served_list() -> String {
    let served = SCRIPTS
        .iter()
        .filter(|script| matches!(script.outcome, Outcome::Serves(..)))
        .map(|script| format!("{}.sh", script.name));
    format!("Supported: {}.", served.collect::<Vec<String>>().join(", "))
}

/// `kafka-run-class.sh [-daemon] [-name NAME] [-loggc] CLASS ARGUMENTS`: runs the script of that
/// class. JVM options are ignored; `-daemon` is passed to the server.
fn run_class(arguments: Vec<String>) -> Called {
    let mut rest = arguments.into_iter();
    let mut line: Vec<String> = rest.next().into_iter().collect();
    let mut is_daemon = false;
    let class = loop {
        match rest.next() {
            Some(option) if option == "-daemon" => is_daemon = true,
            Some(option) if option == "-name" => drop(rest.next()),
            Some(option) if option == "-loggc" => {}
            Some(class) => break class,
            None => {
                return Called::NotServed(
                    "kafka-run-class.sh: no class is named; write \
                     kafka-run-class.sh [-daemon] [-name NAME] [-loggc] CLASS [ARGUMENTS]"
                        .into(),
                );
            }
        }
    };
    // Before Kafka 4 the tools were classes of kafka.tools and kafka.admin; in 0.8 one was in the
    // clients.
    const FORMER: [&str; 2] = ["kafka.", "org.apache.kafka.clients.tools."];
    let simple = |class: &str| class.rsplit('.').next().unwrap_or_default().to_owned();
    // In 0.8 the latency measurement had another name.
    let class = match simple(&class).as_str() {
        "TestEndToEndLatency" => "kafka.tools.EndToEndLatency".to_owned(),
        _ => class,
    };
    let known = SCRIPTS.iter().find(|script| {
        !script.class.is_empty()
            && (script.class == class
                || (FORMER.iter().any(|package| class.starts_with(package))
                    && simple(script.class) == simple(&class)))
    });
    match known.map(|script| (script, script.outcome)) {
        Some((_, Outcome::Serves(command, _))) => {
            line.push(command.to_owned());
            if is_daemon && command == "server-start" {
                line.push("-daemon".into());
            }
            line.extend(rest);
            Called::As(line)
        }
        Some((script, Outcome::NotServed(reason))) => Called::NotServed(format!(
            "kafka-run-class.sh: {class} is not supported ({}.sh): {reason}. {}",
            script.name,
            served_list()
        )),
        None => Called::NotServed(format!(
            "kafka-run-class.sh: {class} is a Java class, which cannot be run here. {}",
            served_list()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &[&str]) -> Called {
        called(line.iter().map(|it| (*it).to_owned()).collect())
    }

    fn line(words: &[&str]) -> Called {
        Called::As(words.iter().map(|it| (*it).to_owned()).collect())
    }

    #[test]
    fn a_link_with_the_name_of_a_script_runs_the_tool() {
        assert_eq!(
            run(&["/opt/bin/kafka-topics.sh", "--list"]),
            line(&["/opt/bin/kafka-topics.sh", "topics", "--list"])
        );
        assert_eq!(
            run(&["kafka-dump-log", "--files", "x"]),
            line(&["kafka-dump-log", "dump-log", "--files", "x"])
        );
        assert_eq!(run(&["ottla", "topics"]), line(&["ottla", "topics"]));
        assert_eq!(run(&["/usr/bin/mine.sh"]), line(&["/usr/bin/mine.sh"]));
    }

    #[test]
    fn unsupported_scripts_print_an_error() {
        for (name, reason) in [
            ("connect-distributed.sh", "Connect"),
            ("kafka-unknown", "not a script of Apache Kafka"),
        ] {
            let Called::NotServed(sentence) = run(&[name]) else {
                panic!("{name}")
            };
            assert!(sentence.contains(reason), "{sentence}");
            assert!(sentence.contains("kafka-topics.sh"), "{sentence}");
        }
    }

    #[test]
    fn classes_are_run_as_their_scripts() {
        assert_eq!(
            run(&[
                "kafka-run-class.sh",
                "-name",
                "x",
                "-loggc",
                "kafka.tools.GetOffsetShell",
                "--topic",
                "t"
            ]),
            line(&["kafka-run-class.sh", "get-offsets", "--topic", "t"])
        );
        assert_eq!(
            run(&[
                "kafka-run-class.sh",
                "-daemon",
                "kafka.Kafka",
                "server.properties"
            ]),
            line(&[
                "kafka-run-class.sh",
                "server-start",
                "-daemon",
                "server.properties"
            ])
        );
        assert_eq!(
            run(&[
                "kafka-run-class.sh",
                "org.apache.kafka.clients.tools.ProducerPerformance",
                "test7"
            ]),
            line(&["kafka-run-class.sh", "producer-perf-test", "test7"])
        );
        assert!(matches!(
            run(&["kafka-run-class.sh", "com.example.Mine"]),
            Called::NotServed(_)
        ));
        assert!(matches!(run(&["kafka-run-class.sh"]), Called::NotServed(_)));
    }
}
