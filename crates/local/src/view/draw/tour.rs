//! The tour's panels: its steps with what the last one told, and the objects that it has applied.

use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{ACCENT, BAD, GOOD, QUIET, WARNING, panel};
use crate::snapshot::{Snapshot, StepState, StepStatus};

/// The steps, and below them the words of the last. Where not all fit, steps are a line of marks.
pub(super) fn steps(snapshot: &Snapshot, area: Rect) -> Paragraph<'_> {
    let (width, height) =
        (usize::from(area.width.saturating_sub(2)), usize::from(area.height.saturating_sub(2)));
    let tour = &snapshot.tour;
    let told: Vec<Line<'_>> =
        tour.lines.iter().flat_map(|line| wrapped(line, width)).map(told_line).collect();
    let mut lines: Vec<Line<'_>> = match tour.steps.len() + told.len() <= height {
        true => tour.steps.iter().enumerate().map(step_line).collect(),
        false => vec![Line::from_iter(tour.steps.iter().enumerate().flat_map(marks))],
    };
    let room = height.saturating_sub(lines.len());
    let unseen = told.len().saturating_sub(room);
    lines.extend(told.into_iter().skip(unseen));
    Paragraph::new(lines).block(panel("tour"))
}

/// What the last step has applied, as far as there is room.
pub(super) fn objects(snapshot: &Snapshot, area: Rect) -> Paragraph<'_> {
    let tour = &snapshot.tour;
    let lines: Vec<&str> = tour.applied.lines().filter(|line| !line.starts_with('#')).collect();
    let room = usize::from(area.height.saturating_sub(2));
    let command = tour.command.trim_start_matches("$ ");
    let title = match lines.len() > room {
        true => format!("{command} ({room} of {} lines)", lines.len()),
        false => command.to_owned(),
    };
    let line = |line: &str| match line.split_once(':') {
        Some((key, value)) if !key.contains(['{', '[']) => Line::from(vec![
            Span::styled(format!("{key}:"), Style::new().fg(ACCENT)),
            Span::raw(value.to_owned()),
        ]),
        _ => Line::raw(line.to_owned()),
    };
    Paragraph::new(lines.into_iter().map(line).collect::<Vec<_>>()).block(panel(&title))
}

fn mark(state: StepState) -> Span<'static> {
    match state {
        StepState::Open => Span::styled("○", Style::new().fg(QUIET)),
        StepState::Running => Span::styled("●", Style::new().fg(WARNING)),
        StepState::Passed => Span::styled("✓", Style::new().fg(GOOD)),
        StepState::Failed => Span::styled("✗", Style::new().fg(BAD)),
    }
}

fn step_line((index, step): (usize, &StepStatus)) -> Line<'_> {
    let key = Span::styled(format!(" {} ", index + 1), Style::new().fg(ACCENT).bold());
    Line::from(vec![key, mark(step.state), Span::raw(format!(" {}", step.title))])
}

fn marks((index, step): (usize, &StepStatus)) -> [Span<'static>; 2] {
    [Span::styled(format!(" {}", index + 1), Style::new().fg(ACCENT).bold()), mark(step.state)]
}

fn told_line(line: String) -> Line<'static> {
    let color = if line.contains("FAILED") { BAD } else { Color::Gray };
    Line::styled(line, Style::new().fg(color))
}

/// A line broken at blanks, with what it begins with repeated before each part.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut lines = Vec::new();
    let mut current = indent.to_owned();
    for word in line.split_whitespace() {
        let is_first = current.len() == indent.len();
        if !is_first && current.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut current, format!("{indent}{word}")));
            continue;
        }
        if !is_first {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_of_a_step_go_on_in_the_next_line() {
        let line = "  VirtualService/shop/reviews: acknowledged by 9 proxies";
        let expected = ["  VirtualService/shop/reviews:", "  acknowledged by 9 proxies"];
        assert_eq!(wrapped(line, 30), expected);
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
