//! Pictures of the live view, as SVG: the cells of a terminal as text.

use std::fmt::Write as _;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use crate::snapshot::Snapshot;
use crate::view::{Chosen, draw};

/// Columns and lines of the terminal in the picture.
const COLUMNS: u16 = 140;
const LINES: u16 = 44;

/// The size of a character in the picture.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;

const BACKGROUND: &str = "#10141c";
const FOREGROUND: &str = "#d4d8e0";

/// The live view of a mesh at a moment.
pub fn draw_mesh(snapshot: &Snapshot) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(COLUMNS, LINES));
    let Ok(_) =
        terminal.draw(|frame| draw(frame, snapshot, &Chosen { ends_mesh: true, ..Chosen::default() }));
    draw_buffer(terminal.backend().buffer())
}

fn draw_buffer(buffer: &Buffer) -> String {
    let (columns, lines) = (buffer.area.width, buffer.area.height);
    let (width, height) = (f64::from(columns) * WIDTH + 24.0, f64::from(lines) * HEIGHT + 24.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\">\n<rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"{BACKGROUND}\"/>\n<g font-family=\"ui-monospace, \
         SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for line in 0..lines {
        let mut column = 0;
        while column < columns {
            let end = run_end(buffer, line, column);
            write_run(&mut svg, buffer, line, column, end);
            column = end;
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Cells that look the same are one text.
fn run_end(buffer: &Buffer, line: u16, start: u16) -> u16 {
    let look = |column: u16| {
        let cell = &buffer[(column, line)];
        (cell.fg, cell.bg, cell.modifier)
    };
    (start + 1..buffer.area.width).find(|column| look(*column) != look(start)).unwrap_or(buffer.area.width)
}

fn write_run(svg: &mut String, buffer: &Buffer, line: u16, start: u16, end: u16) {
    let cell: &Cell = &buffer[(start, line)];
    let text: String = (start..end).map(|column| buffer[(column, line)].symbol()).collect();
    let (x, y) = (12.0 + f64::from(start) * WIDTH, 12.0 + f64::from(line) * HEIGHT);
    let width = f64::from(end - start) * WIDTH;
    // Writing to a string cannot fail.
    if let Some(background) = color(cell.bg) {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{background}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let fill = color(cell.fg).unwrap_or(FOREGROUND);
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let trimmed = text.trim();
    // Blanks at the start of a text are not kept by every viewer.
    let x = x + (text.chars().count() - text.trim_start().chars().count()) as f64 * WIDTH;
    // Fonts differ in width; the length keeps columns in line.
    let length = trimmed.chars().count() as f64 * WIDTH;
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{fill}\"{weight} textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>",
        y + 13.5,
        escaped(trimmed)
    );
}

fn color(color: Color) -> Option<&'static str> {
    match color {
        Color::Green => Some("#7ec77b"),
        Color::Yellow => Some("#e5c07b"),
        Color::Red => Some("#ef6b73"),
        Color::Cyan => Some("#61c5d8"),
        Color::DarkGray => Some("#7a8394"),
        Color::Gray => Some("#b4bac6"),
        Color::Black => Some("#10141c"),
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn cells_that_look_the_same_are_one_text() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        buffer.set_string(0, 0, "a<b", Style::new().fg(Color::Green));
        buffer.set_string(4, 0, "c", Style::new().fg(Color::Red));
        let svg = draw_buffer(&buffer);
        assert!(
            svg.contains(
                "fill=\"#7ec77b\" textLength=\"25.2\" lengthAdjust=\"spacingAndGlyphs\">a&lt;b</text>"
            ),
            "{svg}"
        );
        assert_eq!(svg.matches("<text").count(), 2);
    }
}
