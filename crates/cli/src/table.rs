//! Tables, aligned as Go's `tabwriter` aligns them, because scripts cut its columns.

/// Lines of cells. Each column is as wide as its widest cell and the padding; the last cell of a line is not padded.
pub(crate) fn aligned<R: AsRef<[String]>>(rows: &[R], padding: usize) -> String {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or_default();
    let width = |column: usize| {
        // The last cell of a line belongs to no column.
        let cells = rows.iter().map(AsRef::as_ref).filter(|row| row.len() > column + 1);
        cells.map(|row| row[column].chars().count()).max().unwrap_or_default() + padding
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let row = row.as_ref();
        for (index, cell) in row.iter().enumerate() {
            text.push_str(cell);
            if index + 1 < row.len() {
                let used = cell.chars().count();
                text.extend(std::iter::repeat_n(' ', widths[index].saturating_sub(used)));
            }
        }
        text.push('\n');
    }
    text
}

/// A line of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [row(["NAME", "PORT", ""]), row(["a-long-name", "1", "x"])];
        assert_eq!(aligned(&rows, 2), "NAME         PORT  \na-long-name  1     x\n");
    }
}
