//! Drawing a snapshot.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Table};

use super::Chosen;
use crate::metrics::ServiceTraffic;
use crate::plan::Mode;
use crate::snapshot::{Push, Snapshot, StepState, UnitState};

const GOOD: Color = Color::Green;
const WARNING: Color = Color::Yellow;
const BAD: Color = Color::Red;
const QUIET: Color = Color::DarkGray;
const ACCENT: Color = Color::Cyan;

/// Draws a mesh.
pub(crate) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, chosen: &Chosen) {
    let problems = problems(snapshot);
    let rows = u16::try_from(snapshot.traffic.services.len().max(1)).unwrap_or(u16::MAX);
    let rows_of_calls = u16::try_from(snapshot.traffic.calls.len().max(6)).unwrap_or(u16::MAX);
    let lines = u16::try_from(problems.len()).unwrap_or(u16::MAX);
    let [head, trouble, services, middle, bottom, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines.min(4)),
        Constraint::Length(rows.saturating_add(3)),
        Constraint::Length(rows_of_calls.saturating_add(2)),
        Constraint::Min(9),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [calls, pushes] =
        Layout::horizontal([Constraint::Percentage(36), Constraint::Percentage(64)]).areas(middle);
    let [tour, log] =
        Layout::horizontal([Constraint::Percentage(56), Constraint::Percentage(44)]).areas(bottom);
    frame.render_widget(heading(snapshot), head);
    frame.render_widget(Paragraph::new(problems), trouble);
    frame.render_widget(services_table(snapshot), services);
    frame.render_widget(calls_list(snapshot), calls);
    frame.render_widget(pushes_list(snapshot), pushes);
    frame.render_widget(tour_lines(snapshot, tour), tour);
    frame.render_widget(log_lines(snapshot, log), log);
    frame.render_widget(keys(snapshot, chosen), foot);
}

fn panel(title: &str) -> Block<'_> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Style::new().fg(QUIET))
        .title(Span::styled(format!(" {title} "), Style::new().fg(ACCENT).add_modifier(Modifier::BOLD)))
}

fn heading(snapshot: &Snapshot) -> Paragraph<'_> {
    let settled = snapshot.units.iter().filter(|unit| unit.is_settled()).count();
    let total = snapshot.units.len();
    let state = match settled == total {
        true => Span::styled(format!("{total} processes ready"), Style::new().fg(GOOD)),
        false => Span::styled(format!("{settled} of {total} processes ready"), Style::new().fg(WARNING)),
    };
    let control_plane = match snapshot.control_plane {
        true => Span::styled("canopusd up", Style::new().fg(GOOD)),
        false => Span::styled("canopusd away", Style::new().fg(BAD)),
    };
    let seconds = snapshot.uptime as u64;
    let mode = match snapshot.mode {
        Mode::Namespaces => "network namespaces",
        Mode::Loopback => "loopback mode",
    };
    let gap = || Span::raw("  ");
    Paragraph::new(Line::from(vec![
        Span::styled(
            format!(" canopus · {} ", snapshot.mesh),
            Style::new().fg(Color::Black).bg(ACCENT).bold(),
        ),
        gap(),
        state,
        gap(),
        control_plane,
        gap(),
        Span::raw(snapshot.published.join(" ")),
        gap(),
        Span::styled(format!("{mode}, up {}:{:02}", seconds / 60, seconds % 60), Style::new().fg(QUIET)),
    ]))
}

/// Processes that do not run, and objects that are held back.
fn problems(snapshot: &Snapshot) -> Vec<Line<'_>> {
    let ended = |state| matches!(state, UnitState::Crashed | UnitState::Stopped);
    let crashed = snapshot.units.iter().filter(|unit| ended(unit.state) && !unit.message.is_empty());
    let crashed = crashed.map(|unit| format!(" ✗ {}: {}", unit.name, unit.message));
    let ports = snapshot.problems.iter().map(|problem| format!(" ✗ {problem}"));
    let held =
        snapshot.quarantined.iter().map(|held| format!(" ⚠ quarantine: {}: {}", held.object, held.reason));
    let bad = crashed.chain(ports).map(|text| Line::styled(text, Style::new().fg(BAD)));
    bad.chain(held.map(|text| Line::styled(text, Style::new().fg(WARNING)))).collect()
}

fn services_table(snapshot: &Snapshot) -> Table<'_> {
    let header = ["SERVICE", "VERSION", "PROTOCOL", "RATE", "SUCCESS", "P50", "P99", "mTLS", "CALLED BY"];
    let header = Row::new(header.map(Cell::from)).style(Style::new().fg(QUIET).bold());
    let rows: Vec<Row<'_>> = match snapshot.traffic.services.as_slice() {
        [] => vec![Row::new(["no traffic yet"]).style(Style::new().fg(QUIET))],
        services => services.iter().map(|service| service_row(snapshot, service)).collect(),
    };
    let widths = [
        Constraint::Length(24),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Min(12),
    ];
    Table::new(rows, widths).header(header).block(panel("services"))
}

fn service_row<'a>(snapshot: &'a Snapshot, service: &'a ServiceTraffic) -> Row<'a> {
    let rate = match service.protocol.as_str() {
        "tcp" => format!("{:.1} c/s", service.rate),
        _ => format!("{:.1}/s", service.rate),
    };
    let success = service.success.map(|success| {
        let color = if success > 0.99 {
            GOOD
        } else if success > 0.9 {
            WARNING
        } else {
            BAD
        };
        Span::styled(format!("{:.1} %", success * 100.0), Style::new().fg(color))
    });
    let milliseconds = |time: Option<f64>| time.map(|time| format!("{time:.1} ms")).unwrap_or_default();
    let mutual_tls = match service.mutual_tls {
        Some(part) if part > 0.999 => Span::styled("yes", Style::new().fg(GOOD)),
        Some(part) if part < 0.001 => Span::styled("no", Style::new().fg(BAD)),
        Some(part) => Span::styled(format!("{:.0} %", part * 100.0), Style::new().fg(WARNING)),
        None => Span::styled("—", Style::new().fg(QUIET)),
    };
    let callers: Vec<&str> = snapshot
        .traffic
        .calls
        .iter()
        .filter(|call| call.to == service.service && !call.from.is_empty())
        .map(|call| call.from.as_str())
        .collect();
    Row::new(vec![
        Cell::from(service.service.as_str()).bold(),
        Cell::from(service.version.as_str()),
        Cell::from(service.protocol.as_str()).style(Style::new().fg(QUIET)),
        Cell::from(rate),
        Cell::from(success.unwrap_or_default()),
        Cell::from(milliseconds(service.p50)),
        Cell::from(milliseconds(service.p99)),
        Cell::from(mutual_tls),
        Cell::from(callers.join(", ")),
    ])
}

fn calls_list(snapshot: &Snapshot) -> Paragraph<'_> {
    let line = |call: &crate::metrics::Call| {
        let from = if call.from.is_empty() { "outside" } else { &call.from };
        let color = if call.success.is_none_or(|success| success > 0.99) { GOOD } else { BAD };
        Line::from(vec![
            Span::raw(format!("{from} ")),
            Span::styled("─▶ ", Style::new().fg(color)),
            Span::raw(format!("{} ", call.to)),
            Span::styled(format!("{:.1}/s", call.rate), Style::new().fg(QUIET)),
        ])
    };
    Paragraph::new(snapshot.traffic.calls.iter().map(line).collect::<Vec<_>>()).block(panel("who calls whom"))
}

fn pushes_list(snapshot: &Snapshot) -> Paragraph<'_> {
    let lines: Vec<Line<'_>> =
        snapshot.pushes.iter().filter(|push| push.recipients > 0).map(push_line).collect();
    Paragraph::new(lines).block(panel("pushes: cause, proxies, time to the last acknowledgement"))
}

fn push_line(push: &Push) -> Line<'_> {
    let cause = match push.objects.as_slice() {
        [] => push.reasons.join(", "),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {} more", rest.len()),
    };
    let outcome = match push.acknowledged {
        _ if push.rejected > 0 => {
            Span::styled(format!("rejected by {}", push.rejected), Style::new().fg(BAD))
        }
        Some(milliseconds) => Span::styled(format!("{milliseconds:.0} ms"), Style::new().fg(GOOD)),
        None => Span::styled("waiting", Style::new().fg(WARNING)),
    };
    Line::from(vec![
        Span::styled(format!("#{:<4} ", push.revision), Style::new().fg(QUIET)),
        Span::raw(format!("{cause}  ")),
        Span::styled(format!("→ {} ", push.recipients), Style::new().fg(QUIET)),
        outcome,
    ])
}

fn tour_lines(snapshot: &Snapshot, area: Rect) -> Paragraph<'_> {
    let mark = |state: StepState| match state {
        StepState::Open => Span::styled("○", Style::new().fg(QUIET)),
        StepState::Running => Span::styled("●", Style::new().fg(WARNING)),
        StepState::Passed => Span::styled("✓", Style::new().fg(GOOD)),
        StepState::Failed => Span::styled("✗", Style::new().fg(BAD)),
    };
    let steps = snapshot.tour.steps.iter().enumerate();
    let mut lines: Vec<Line<'_>> = steps
        .map(|(index, step)| {
            let key = Span::styled(format!(" {} ", index + 1), Style::new().fg(ACCENT).bold());
            Line::from(vec![key, mark(step.state), Span::raw(format!(" {}", step.title))])
        })
        .collect();
    let room = usize::from(area.height).saturating_sub(2 + lines.len());
    let told = &snapshot.tour.lines;
    let told = told.iter().skip(told.len().saturating_sub(room));
    lines.extend(told.map(|line| {
        Line::styled(line.as_str(), Style::new().fg(if line.contains("FAILED") { BAD } else { Color::Gray }))
    }));
    Paragraph::new(lines).block(panel("tour"))
}

fn log_lines(snapshot: &Snapshot, area: Rect) -> Paragraph<'_> {
    let room = usize::from(area.height).saturating_sub(2);
    let shown = snapshot.log.iter().skip(snapshot.log.len().saturating_sub(room));
    let line = |line: &crate::snapshot::LogLine| {
        let process = Span::styled(format!("{} ", line.process), Style::new().fg(ACCENT));
        Line::from(vec![process, Span::raw(line.text.replace('\t', " "))])
    };
    Paragraph::new(shown.map(line).collect::<Vec<_>>()).block(panel("log"))
}

fn keys<'a>(snapshot: &Snapshot, chosen: &'a Chosen) -> Paragraph<'a> {
    let mut keys = Vec::new();
    let mut key = |name: String, meaning: &'static str| {
        keys.push(Span::styled(format!(" {name} "), Style::new().fg(Color::Black).bg(QUIET)));
        keys.push(Span::raw(format!(" {meaning}  ")));
    };
    if !snapshot.tour.steps.is_empty() {
        key(format!("1-{}", snapshot.tour.steps.len()), "take a step of the tour");
        key("0".to_owned(), "take it back");
    }
    key("q".to_owned(), if chosen.ends_mesh { "end the mesh" } else { "leave it running" });
    keys.push(Span::styled(chosen.words.as_str(), Style::new().fg(ACCENT)));
    Paragraph::new(Line::from(keys))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::metrics::{Call, Traffic};
    use crate::snapshot::{Held, LogLine, StepStatus, TourStatus, UnitKind, UnitStatus};

    fn snapshot() -> Snapshot {
        let unit = |name: &str, state, message: &str| UnitStatus {
            name: name.to_owned(),
            kind: UnitKind::Program,
            state,
            pid: None,
            restarts: 0,
            message: message.to_owned(),
        };
        let service = ServiceTraffic {
            service: "reviews".to_owned(),
            version: "v1".to_owned(),
            rate: 12.5,
            success: Some(0.5),
            p50: Some(1.25),
            p99: Some(9.0),
            mutual_tls: Some(1.0),
            protocol: "http".to_owned(),
        };
        let call = Call { from: "web".to_owned(), to: "reviews".to_owned(), rate: 12.5, success: Some(0.5) };
        let push = Push {
            revision: 7,
            objects: vec!["VirtualService/shop/reviews".to_owned()],
            reasons: Vec::new(),
            recipients: 3,
            rejected: 0,
            acknowledged: Some(12.4),
        };
        let step = StepStatus {
            name: "shift".to_owned(),
            title: "Shift traffic".to_owned(),
            state: StepState::Passed,
        };
        Snapshot {
            mesh: "shop".to_owned(),
            mode: Mode::Namespaces,
            uptime: 62.0,
            units: vec![
                unit("web", UnitState::Ready, ""),
                unit("cart", UnitState::Crashed, "./cart: no such program"),
            ],
            problems: vec!["port 8080 of this machine is in use".to_owned()],
            published: vec!["http://localhost:8080".to_owned()],
            traffic: Traffic { services: vec![service], calls: vec![call] },
            pushes: vec![push],
            quarantined: vec![Held {
                object: "EnvoyFilter/shop/bad".to_owned(),
                reason: "no such field".to_owned(),
            }],
            control_plane: true,
            log: vec![LogLine { process: "web".to_owned(), text: "hello".to_owned() }],
            tour: TourStatus { steps: vec![step], lines: vec!["v1 90 %".to_owned()], applied: String::new() },
        }
    }

    fn screen(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &snapshot(), &Chosen::default())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_of_a_snapshot_is_on_the_screen() {
        let screen = screen(130, 36);
        for text in [
            "canopus · shop",
            "1 of 2 processes ready",
            "cart: ./cart: no such program",
            "port 8080 of this machine is in use",
            "quarantine: EnvoyFilter/shop/bad",
            "12.5/s",
            "50.0 %",
            "1.2 ms",
            "9.0 ms",
            "yes",
            "web ─▶ reviews",
            "VirtualService/shop/reviews  → 3 12 ms",
            "✓ Shift traffic",
            "v1 90 %",
            "web hello",
            "leave it running",
        ] {
            assert!(screen.contains(text), "{text} is not in\n{screen}");
        }
    }

    #[test]
    fn screen_of_any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            screen(width, height);
        }
    }
}
