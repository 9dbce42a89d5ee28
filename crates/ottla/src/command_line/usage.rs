//! Wraps the usage line of a help text or of an error, which clap does not wrap.

const TITLE: &str = "Usage: ";

/// The text with its usage line wrapped at this width: before an argument, and between the
/// alternatives of an argument that is longer than a line. The codes of colours have no width.
pub(super) fn wrap(text: &str, width: usize) -> String {
    let lines = text
        .split('\n')
        .map(|line| match visible(line).starts_with(TITLE) {
            true => wrap_line(line, width),
            false => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    let indent = TITLE.len();
    let mut wrapped = String::new();
    let mut column = 0;
    for argument in arguments(line) {
        let is_long = indent + width_of(&argument) > width;
        let pieces: Vec<&str> = match is_long {
            true => argument.split_inclusive('|').collect(),
            false => vec![argument.as_str()],
        };
        for (index, piece) in pieces.into_iter().enumerate() {
            let is_separate = index == 0 && column > 0;
            let end = column + usize::from(is_separate) + width_of(piece);
            if column > indent && end > width {
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                column = indent;
            } else if is_separate {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(piece);
            column += width_of(piece);
        }
    }
    wrapped
}

/// The words of the line, an option and its value as one.
fn arguments(line: &str) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match arguments.last_mut() {
            Some(before) if is_value(before, word) => {
                before.push(' ');
                before.push_str(word);
            }
            _ => arguments.push(word.to_owned()),
        }
    }
    arguments
}

/// Whether the word is the value of the option that ends `before`, as in `--topic <TOPIC>` and
/// `<--topic <TOPIC>|--include <REGEX>>`.
fn is_value(before: &str, word: &str) -> bool {
    let (before, word) = (visible(before), visible(word));
    let option = before.rsplit([' ', '|']).next().unwrap_or_default();
    let is_option = option.trim_start_matches('<').starts_with('-') && !option.ends_with('>');
    is_option && word.starts_with('<') && !word.starts_with("<-")
}

fn width_of(text: &str) -> usize {
    visible(text).chars().count()
}

/// The text without the codes of colours, which begin with an escape character and end with `m`.
fn visible(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut visible = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        visible.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn a_usage_line_is_wrapped_before_arguments_and_between_alternatives() {
        let text = "Prints.\n\n\
                    Usage: ottla t [OPTIONS] --id <ID> <--one <A>|--other <B>> <COMMAND>\n\n\
                    Options:\n";
        let wrapped = "Prints.\n\n\
                       Usage: ottla t [OPTIONS] --id <ID>\n       \
                       <--one <A>|--other <B>> <COMMAND>\n\nOptions:\n";
        assert_eq!(wrap(text, 40), wrapped);
        assert_eq!(
            wrap(text, 38),
            wrapped.replace("> <COMMAND>", ">\n       <COMMAND>")
        );
        assert_eq!(wrap(text, 80), text);
        let narrow = [
            "Usage: ottla t",
            "       [OPTIONS]",
            "       --id <ID>",
            "       <--one <A>|",
            "       --other <B>>",
            "       <COMMAND>",
        ];
        let narrow = narrow.join("\n");
        assert!(wrap(text, 20).contains(&narrow), "{}", wrap(text, 20));
    }

    #[test]
    fn colours_have_no_width() {
        let line = "\u{1b}[1m\u{1b}[4mUsage:\u{1b}[0m \u{1b}[1mottla t\u{1b}[0m [OPTIONS] \
                    \u{1b}[1m--id\u{1b}[0m <ID>";
        assert_eq!(wrap(line, 34), line);
        let wrapped = line.replace(" \u{1b}[1m--id", "\n       \u{1b}[1m--id");
        assert_eq!(wrap(line, 33), wrapped);
    }
}
