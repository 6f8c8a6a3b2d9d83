//! Aligned text tables: first column to the left, the others to the right.

/// Rows of cells under a header.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row; a short row is filled with empty cells.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(width).collect()
    }

    /// As plain text, two spaces between the columns.
    #[must_use]
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let line = |row: &Vec<String>| {
            let cells = widths.iter().enumerate().map(|(column, width)| {
                let cell = row.get(column).map_or("", String::as_str);
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    /// As a Markdown table.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let columns = self.widths().len();
        let line = |row: &Vec<String>| {
            let cell = |column: usize| row.get(column).map_or("", String::as_str);
            let cells: Vec<_> = (0..columns).map(|c| cell(c).replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut lines: Vec<String> = self.rows.iter().map(line).collect();
        lines.insert(1.min(lines.len()), format!("|{}\n", " --- |".repeat(columns)));
        lines.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["link", "MB"]);
        table.row(["a → b", "1.5"]).row(["b → a", "120"]);
        assert_eq!(table.to_text(), "link    MB\na → b  1.5\nb → a  120\n");
        assert_eq!(
            table.to_markdown(),
            "| link | MB |\n| --- | --- |\n| a → b | 1.5 |\n| b → a | 120 |\n"
        );
    }

    #[test]
    fn short_rows_are_filled() {
        let mut table = Table::new(["a", "b"]);
        table.row(["x"]);
        assert_eq!(table.to_text(), "a  b\nx\n");
    }
}
