//! Tables for people to read.

use unicode_width::UnicodeWidthStr;

/// The rows as lines, with two spaces between columns: the first `left` columns aligned to the left, the others to the right.
/// Rows have the same number of cells.
///
/// ```
/// use ocelli_datasets::table::{columns, row};
///
/// let rows = [row("class", ["images"]), row("犬", ["12"])];
/// assert_eq!(columns(&rows, 1), "class  images\n犬         12\n");
/// ```
pub fn columns(rows: &[Vec<String>], left: usize) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(widest).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let padding = " ".repeat(width - cell.width());
            if column < left { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A row: a name, of which control characters are replaced, and other cells.
pub fn row<C: Into<String>>(name: &str, cells: impl IntoIterator<Item = C>) -> Vec<String> {
    std::iter::once(printable(name)).chain(cells.into_iter().map(Into::into)).collect()
}

/// The first `most` of some names, and how many more there are.
pub(crate) fn some<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let more = if names.len() > most { format!(" and {} more", names.len() - most) } else { String::new() };
    let first: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    format!("{}{more}", first.join(", "))
}

/// The text without control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{FFFD}' } else { letter }).collect()
}
