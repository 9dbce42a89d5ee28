//! Tables whose columns are as wide as Kafka's tools make them: a least width, more where a value needs
//! it, a blank between two columns, and a last column that is not padded.

/// A table being built.
pub(in crate::tools) struct Table {
    widths: Vec<usize>,
    /// Whether a column grows with its values.
    grows: Vec<bool>,
    /// Whether the last column is padded too.
    pads_last: bool,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns: title, least width, whether it grows. The last column is not padded.
    pub(in crate::tools) fn new(columns: &[(&str, usize, bool)]) -> Table {
        Table {
            widths: columns.iter().map(|(_, width, _)| *width).collect(),
            grows: columns.iter().map(|(_, _, grows)| *grows).collect(),
            pads_last: false,
            rows: vec![
                columns
                    .iter()
                    .map(|(title, _, _)| (*title).to_owned())
                    .collect(),
            ],
        }
    }

    /// Pads the last column as the others.
    pub(in crate::tools) fn pad_last(mut self) -> Table {
        self.pads_last = true;
        self
    }

    pub(in crate::tools) fn row(&mut self, cells: Vec<String>) {
        for ((width, cell), grows) in self.widths.iter_mut().zip(&cells).zip(&self.grows) {
            if *grows {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.rows.push(cells);
    }

    /// Each line in a line of its own.
    pub(in crate::tools) fn print(&self) {
        for line in self.lines() {
            println!("{line}");
        }
    }

    /// An empty line, and the lines.
    pub(in crate::tools) fn print_apart(&self) {
        println!();
        self.print();
    }

    /// The lines, the titles first.
    pub(in crate::tools) fn lines(&self) -> impl Iterator<Item = String> {
        self.rows.iter().map(|row| {
            let mut line = String::new();
            for (index, cell) in row.iter().enumerate() {
                if index > 0 {
                    line.push(' ');
                }
                if index + 1 == row.len() && !self.pads_last {
                    line.push_str(cell)
                } else {
                    line += &format!("{cell:<width$}", width = self.widths[index])
                }
            }
            line
        })
    }
}

/// What a column holds where there is nothing to say.
pub(in crate::tools) const MISSING: &str = "-";

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_grow_where_they_may() {
        let mut table = Table::new(&[("GROUP", 6, true), ("N", 3, false), ("LAST", 9, false)]);
        table.row(vec!["long-group".into(), "12345".into(), "x".into()]);
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(lines, ["GROUP      N   LAST", "long-group 12345 x"]);
    }
}
