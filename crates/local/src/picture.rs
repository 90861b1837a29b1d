//! Pictures of the live view, as SVG: the cells of a terminal as text, still or moving.
//!
//! A moving picture shows one frame after the other by CSS, without a script, so it also moves where it is an image. A line of the
//! terminal that looks the same in several frames is there once. A viewer that knows no animation shows the first frame.

use std::collections::BTreeMap;
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

/// How long a frame is shown, in seconds.
const HOLD: usize = 5;

const BACKGROUND: &str = "#10141c";
const FOREGROUND: &str = "#d4d8e0";

/// The live view of a mesh at these moments; a still picture if it is one.
pub fn draw_mesh(snapshots: &[Snapshot]) -> String {
    let frames: Vec<Buffer> = snapshots.iter().map(frame).collect();
    draw_frames(&frames)
}

fn frame(snapshot: &Snapshot) -> Buffer {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(COLUMNS, LINES));
    let Ok(_) =
        terminal.draw(|frame| draw(frame, snapshot, &Chosen { ends_mesh: true, ..Chosen::default() }));
    terminal.backend().buffer().clone()
}

fn draw_frames(frames: &[Buffer]) -> String {
    let Some(first) = frames.first() else { return String::new() };
    let (width, height) =
        (f64::from(first.area.width) * WIDTH + 24.0, f64::from(first.area.height) * HEIGHT + 24.0);
    // Which frames show what, a line of the terminal at a time.
    let mut shown: BTreeMap<Vec<bool>, String> = BTreeMap::new();
    for line in 0..first.area.height {
        let texts: Vec<String> = frames.iter().map(|frame| draw_line(frame, line)).collect();
        for (index, text) in texts.iter().enumerate() {
            if !texts[..index].contains(text) {
                let frames = texts.iter().map(|other| other == text).collect();
                shown.entry(frames).or_default().push_str(text);
            }
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\">\n<style>\n"
    );
    for (number, frames) in shown.keys().enumerate() {
        write_animation(&mut svg, number, frames);
    }
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}\n</style>\n<rect width=\"100%\" height=\"100%\" \
         rx=\"10\" fill=\"{BACKGROUND}\"/>\n<g fill=\"{FOREGROUND}\" font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, \
         'DejaVu Sans Mono', monospace\" font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for (number, text) in shown.values().enumerate() {
        let _ = writeln!(svg, "<g class=\"f{number}\">\n{text}</g>");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// When a group is to be seen. One that always is needs no rule.
fn write_animation(svg: &mut String, number: usize, frames: &[bool]) {
    if frames.iter().all(|is_shown| *is_shown) {
        return;
    }
    let opacity = |is_shown: bool| u8::from(is_shown);
    let count = frames.len();
    let first = opacity(frames[0]);
    let _ =
        write!(svg, ".f{number}{{opacity:{first};animation:f{number} {}s step-end infinite}}", HOLD * count);
    let _ = write!(svg, "@keyframes f{number}{{0%{{opacity:{first}}}");
    for (index, pair) in frames.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]) {
        let percent = 100.0 * (index + 1) as f64 / count as f64;
        let _ = write!(svg, "{percent:.3}%{{opacity:{}}}", opacity(pair[1]));
    }
    svg.push_str("}\n");
}

fn draw_line(buffer: &Buffer, line: u16) -> String {
    let mut svg = String::new();
    let mut column = 0;
    while column < buffer.area.width {
        let end = run_end(buffer, line, column);
        write_run(&mut svg, buffer, line, column, end);
        column = end;
    }
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
    let fill = color(cell.fg).map(|fill| format!(" fill=\"{fill}\"")).unwrap_or_default();
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let trimmed = text.trim();
    // Blanks at the start of a text are not kept by every viewer.
    let x = x + (text.chars().count() - text.trim_start().chars().count()) as f64 * WIDTH;
    // Fonts differ in width; the length keeps columns in line. A sign of one character has no space to spread.
    let length = match trimmed.chars().count() {
        1 => String::new(),
        count => format!(" textLength=\"{:.1}\"", count as f64 * WIDTH),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{:.1}\"{fill}{weight}{length}>{}</text>",
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
    // Programs may write what XML does not know.
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    fn buffer(lines: &[&str]) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 2));
        for (line, text) in (0..).zip(lines) {
            buffer.set_string(0, line, text, Style::new());
        }
        buffer
    }

    #[test]
    fn cells_that_look_the_same_are_one_text() {
        let mut buffer = buffer(&[]);
        buffer.set_string(0, 0, "a<b", Style::new().fg(Color::Green));
        buffer.set_string(4, 0, "cd", Style::new().fg(Color::Red));
        let svg = draw_frames(&[buffer]);
        assert!(svg.contains("fill=\"#7ec77b\" textLength=\"25.2\">a&lt;b</text>"), "{svg}");
        assert_eq!((svg.matches("<text").count(), svg.matches("@keyframes").count()), (2, 0));
    }

    #[test]
    fn line_that_several_frames_share_is_there_once() {
        let frames = [buffer(&["head", "one"]), buffer(&["head", "two"]), buffer(&["head", "one"])];
        let svg = draw_frames(&frames);
        assert_eq!(["head", "one", "two"].map(|text| svg.matches(&format!(">{text}<")).count()), [1, 1, 1]);
        // Seen in the second frame alone, and in the first and the third.
        assert!(svg.contains("{0%{opacity:0}33.333%{opacity:1}66.667%{opacity:0}}"), "{svg}");
        assert!(svg.contains("{0%{opacity:1}33.333%{opacity:0}66.667%{opacity:1}}"), "{svg}");
        assert!(svg.contains(" 15s step-end infinite"), "{svg}");
    }
}
