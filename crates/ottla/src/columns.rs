//! Text in columns that are as wide as their widest cell.

pub fn widths<R: AsRef<[String]>>(rows: &[R]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        let cells = row.as_ref();
        widths.resize(cells.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    widths
}

/// A line for each row, with this gap between two columns and no blanks at the end.
pub fn lines<R: AsRef<[String]>>(rows: &[R], gap: &str) -> Vec<String> {
    let widths = widths(rows);
    let line = |row: &R| {
        let cells = row.as_ref().iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        cells.join(gap).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let lines = lines(&[row(["NODE", "ROLES"]), row(["101", "broker"])], "  ");
        assert_eq!(lines, ["NODE  ROLES", "101   broker"]);
    }
}
