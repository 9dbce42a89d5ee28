//! Tables with the column widths of Kafka's tools: a minimum width that grows with the values, a
//! blank between two columns, and an unpadded last column.

/// A table with an `R` in each row.
pub(in crate::tools) struct Table<'a, R> {
    columns: Vec<Column<'a, R>>,
    /// Whether the last column is padded too.
    pads_last: bool,
}

struct Column<'a, R> {
    title: &'static str,
    least_width: usize,
    /// Whether the column grows with its values.
    grows: bool,
    cell: Box<dyn Fn(&R) -> String + 'a>,
}

impl<'a, R> Table<'a, R> {
    /// The last column is not padded.
    pub(in crate::tools) fn new() -> Table<'a, R> {
        Table {
            columns: Vec::new(),
            pads_last: false,
        }
    }

    /// Adds a column that grows with its values from this minimum width.
    pub(in crate::tools) fn growing<T: ToString>(
        &mut self,
        title: &'static str,
        least_width: usize,
        cell: impl Fn(&R) -> T + 'a,
    ) {
        self.columns.push(Column {
            title,
            least_width,
            grows: true,
            cell: Box::new(move |row| cell(row).to_string()),
        });
    }

    /// Adds a column with this fixed width.
    pub(in crate::tools) fn fixed<T: ToString>(
        &mut self,
        title: &'static str,
        width: usize,
        cell: impl Fn(&R) -> T + 'a,
    ) {
        self.growing(title, width, cell);
        self.columns.last_mut().expect("just added").grows = false;
    }

    /// Pads the last column like the other columns.
    pub(in crate::tools) fn pad_last(&mut self) {
        self.pads_last = true;
    }

    /// Prints the header and the rows.
    pub(in crate::tools) fn print(&self, rows: &[R]) {
        for line in self.lines(rows) {
            println!("{line}");
        }
    }

    /// Prints an empty line, the header and the rows.
    pub(in crate::tools) fn print_apart(&self, rows: &[R]) {
        println!();
        self.print(rows);
    }

    /// The formatted lines, header first.
    pub(in crate::tools) fn lines(&self, rows: &[R]) -> Vec<String> {
        let mut lines = vec![String::new(); 1 + rows.len()];
        for (index, column) in self.columns.iter().enumerate() {
            let titled = std::iter::once(column.title.to_owned());
            let cells: Vec<String> = titled.chain(rows.iter().map(&column.cell)).collect();
            let longest = cells[1..].iter().map(|cell| cell.chars().count()).max();
            let width = match longest.filter(|_| column.grows) {
                Some(longest) => longest.max(column.least_width),
                None => column.least_width,
            };
            let is_last = index + 1 == self.columns.len();
            for (line, cell) in lines.iter_mut().zip(cells) {
                if index > 0 {
                    line.push(' ');
                }
                if is_last && !self.pads_last {
                    line.push_str(&cell)
                } else {
                    *line += &format!("{cell:<width$}")
                }
            }
        }
        lines
    }
}

/// A value, or [`MISSING`].
pub(in crate::tools) fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |value| value.to_string())
}

/// The content of a cell without a value.
pub(in crate::tools) const MISSING: &str = "-";

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn flexible_columns_grow() {
        let mut table = Table::new();
        table.growing("GROUP", 6, |row: &[&str; 3]| row[0].to_owned());
        table.fixed("N", 3, |row| row[1].to_owned());
        table.fixed("LAST", 9, |row| row[2].to_owned());
        let lines = table.lines(&[["long-group", "12345", "x"]]);
        assert_eq!(lines, ["GROUP      N   LAST", "long-group 12345 x"]);
    }
}
