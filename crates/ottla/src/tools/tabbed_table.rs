//! Tables in the format of `ToolsUtils.prettyPrintTable`: cells padded to the column width, each
//! followed by a tab.

use crate::columns::widths;

/// Prints the header and the rows.
pub(super) fn print<const COLUMNS: usize>(
    titles: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) {
    let titles = titles.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    for line in lines(&rows) {
        println!("{line}");
    }
}

fn lines<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let widths = widths(rows);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths);
        cells
            .map(|(cell, &width)| format!("{cell:<width$}\t"))
            .collect()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn cells_are_as_wide_as_the_widest_of_their_column() {
        let rows = [["Id", "State"], ["payments", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(lines(&rows), ["Id      \tState\t", "payments\tx    \t"]);
    }
}
