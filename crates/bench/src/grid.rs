//! The table of programs: a row for each, a column for each way that it ran.

use crate::figure::{Cell, Figure, short};
use gridmpi_report::table::Table;

/// Those figures that have a cell in it, each with its ratio to what it is compared to; `None` if none has.
#[must_use]
pub fn table(figures: &[Figure]) -> Option<Table> {
    let cells: Vec<(&Cell, &Figure)> =
        figures.iter().filter_map(|figure| Some((figure.cell.as_ref()?, figure))).collect();
    let (_, first) = cells.first()?;
    let columns = distinct(cells.iter().map(|(cell, _)| cell.column));
    let rows = distinct(cells.iter().map(|(cell, _)| cell.row.as_str()));
    let whom = format!("(by {})", first.against.whom);
    let mut table =
        Table::new([&format!("program {whom}"), "unit"].into_iter().chain(columns.iter().copied()));
    for row in rows {
        let mine: Vec<_> = cells.iter().filter(|(cell, _)| cell.row == row).collect();
        let unit = mine.first().map_or("", |(_, figure)| figure.unit);
        let of = |column: &&str| {
            let found = mine.iter().find(|(cell, _)| cell.column == *column);
            found.map_or_else(String::new, |(_, figure)| text(figure))
        };
        let head = [row.to_owned(), unit.to_owned()];
        table.row(head.into_iter().chain(columns.iter().map(of)));
    }
    Some(table)
}

fn text(figure: &Figure) -> String {
    let ratio = figure.ratio_text(2);
    let likely = figure.likely.map(|[low, high]| format!(", {low:.2}–{high:.2}"));
    format!("{} ({ratio}{})", short(figure.ours), likely.unwrap_or_default())
}

/// Each once, in the order in which they come first.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Bound;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let figure = |row: &str, column, value: f64| {
            let figure = Figure::new("f", "s", &[value], "the best", &[2.0], Bound::Told);
            figure.in_cell(Cell { row: row.to_owned(), column })
        };
        let figures = [figure("x", "off", 4.0), figure("x", "auto", 2.1), figure("y", "auto", 2.0)];
        let text = table(&figures).unwrap().to_text();
        let lines: Vec<Vec<_>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["x", "s", "4", "(2.00)", "2.1", "(1.05)"], "{text}");
        assert_eq!(lines[2], ["y", "s", "2", "(1.00)"], "{text}");
        assert!(lines.len() == 3 && text.contains("by the best"), "{text}");
        assert!(table(&[]).is_none() && crate::figure::table(&figures).is_none());
    }
}
