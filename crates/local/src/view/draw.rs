//! Drawing a snapshot.

mod tour;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Table};

use super::Chosen;
use crate::metrics::ServiceTraffic;
use crate::plan::Mode;
use crate::snapshot::{Push, Snapshot, UnitState};

const GOOD: Color = Color::Green;
const WARNING: Color = Color::Yellow;
const BAD: Color = Color::Red;
const QUIET: Color = Color::DarkGray;
const ACCENT: Color = Color::Cyan;

/// Stands for mutual TLS.
const LOCK: &str = "🔒";

/// Below this width the panels at the bottom are two and not three.
const WIDE: u16 = 120;

/// The least height of the panels at the bottom, without a step of the tour and with one.
const LEAST_BOTTOM: u16 = 9;
const LEAST_BOTTOM_WITH_STEP: u16 = 14;

/// Draws a mesh.
pub(crate) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, chosen: &Chosen) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(heading(snapshot), head);
    frame.render_widget(keys(snapshot, chosen, foot), foot);
    if chosen.objects_alone && !snapshot.tour.applied.is_empty() {
        frame.render_widget(tour::objects(snapshot, body), body);
    } else {
        draw_panels(frame, snapshot, body);
    }
}

fn draw_panels(frame: &mut Frame<'_>, snapshot: &Snapshot, area: Rect) {
    let problems = problems(snapshot);
    let heights = Heights::fit(snapshot, problems.len(), area.height);
    let [trouble, services, middle, bottom] = Layout::vertical([
        Constraint::Length(heights.trouble),
        Constraint::Length(heights.services),
        Constraint::Length(heights.middle),
        Constraint::Min(0),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(problems), trouble);
    frame.render_widget(services_table(snapshot, services), services);
    if heights.middle > 0 {
        let [calls, pushes] =
            Layout::horizontal([Constraint::Percentage(36), Constraint::Percentage(64)]).areas(middle);
        frame.render_widget(calls_list(snapshot), calls);
        frame.render_widget(pushes_list(snapshot), pushes);
    }
    let (has_objects, is_wide) = (!snapshot.tour.applied.is_empty(), bottom.width >= WIDE);
    let shares: &[u16] = match (has_objects, is_wide) {
        (true, true) => &[38, 30, 32],
        (true, false) => &[42, 58],
        (false, _) => &[56, 44],
    };
    let areas = Layout::horizontal(shares.iter().map(|share| Constraint::Percentage(*share))).split(bottom);
    frame.render_widget(tour::steps(snapshot, areas[0]), areas[0]);
    if has_objects {
        frame.render_widget(tour::objects(snapshot, areas[1]), areas[1]);
    }
    if let Some(area) = areas.get(usize::from(has_objects) + 1) {
        frame.render_widget(log_lines(snapshot, *area), *area);
    }
}

/// How high panels are. What a step of the tour does has its place first: somebody has just asked for it.
struct Heights {
    trouble: u16,
    services: u16,
    /// Calls and pushes; 0 if there is no room for them.
    middle: u16,
}

impl Heights {
    fn fit(snapshot: &Snapshot, problems: usize, height: u16) -> Self {
        let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let trouble = count(problems).min(if height < 34 { 2 } else { 4 });
        let free = height.saturating_sub(trouble);
        let tour = &snapshot.tour;
        let least = if tour.applied.is_empty() { LEAST_BOTTOM } else { LEAST_BOTTOM_WITH_STEP };
        let rows = count(snapshot.traffic.services.len().max(1)).saturating_add(3);
        let services = rows.min(free.saturating_sub(least).max(4));
        let left = free.saturating_sub(services);
        let wanted = least.max(count(tour.applied.lines().count()).saturating_add(2));
        let calls = count(snapshot.traffic.calls.len().max(6)).saturating_add(2);
        let middle = calls.min(left.saturating_sub(wanted));
        // A frame with one line in it is no use.
        Self { trouble, services, middle: if middle < 5 { 0 } else { middle } }
    }
}

fn panel(title: &str) -> Block<'static> {
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

fn services_table(snapshot: &Snapshot, area: Rect) -> Table<'_> {
    let header = ["SERVICE", "VERSION", "PROTOCOL", "RATE", "SUCCESS", "P50", "P99", "mTLS", "CALLED BY"];
    let header = Row::new(header.map(Cell::from)).style(Style::new().fg(QUIET).bold());
    let rows: Vec<Row<'_>> = match snapshot.traffic.services.as_slice() {
        [] => vec![Row::new(["no services"]).style(Style::new().fg(QUIET))],
        services => services.iter().map(|service| service_row(snapshot, service)).collect(),
    };
    // On a narrow terminal who calls is left out.
    let (service, callers) = match area.width < WIDE {
        true => (Constraint::Min(14), Constraint::Length(0)),
        false => (Constraint::Length(24), Constraint::Min(12)),
    };
    let widths = [8, 8, 9, 8, 8, 8, 6].map(Constraint::Length);
    let widths = [service].into_iter().chain(widths).chain([callers]);
    let (all, shown) = (rows.len(), usize::from(area.height.saturating_sub(3)));
    let title = match shown < all {
        true => format!("services ({shown} of {all})"),
        false => "services".to_owned(),
    };
    Table::new(rows, widths).header(header).block(panel(&title))
}

fn service_row<'a>(snapshot: &'a Snapshot, service: &'a ServiceTraffic) -> Row<'a> {
    let rate = match service.protocol.as_str() {
        _ if service.rate == 0.0 => "–".to_owned(),
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
        Some(part) if part > 0.999 => Span::styled(LOCK, Style::new().fg(GOOD)),
        Some(part) if part < 0.001 => Span::styled("plain", Style::new().fg(BAD)),
        // Neither all nor none, also when rounded.
        Some(part) => {
            let percent = (part * 100.0).clamp(1.0, 99.0);
            Span::styled(format!("{LOCK}{percent:.0} %"), Style::new().fg(WARNING))
        }
        None => Span::styled("–", Style::new().fg(QUIET)),
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

fn log_lines(snapshot: &Snapshot, area: Rect) -> Paragraph<'_> {
    let room = usize::from(area.height).saturating_sub(2);
    let shown = snapshot.log.iter().skip(snapshot.log.len().saturating_sub(room));
    let line = |line: &crate::snapshot::LogLine| {
        let process = Span::styled(format!("{} ", line.process), Style::new().fg(ACCENT));
        Line::from(vec![process, Span::raw(without_time(&line.text).replace('\t', " "))])
    };
    Paragraph::new(shown.map(line).collect::<Vec<_>>()).block(panel("log"))
}

/// A line without the time it begins with: the last lines are new, and there is little room.
fn without_time(line: &str) -> &str {
    match line.split_once(['\t', ' ']) {
        Some((first, rest)) if first.parse::<jiff::Timestamp>().is_ok() => rest,
        _ => line,
    }
}

fn keys<'a>(snapshot: &Snapshot, chosen: &'a Chosen, area: Rect) -> Paragraph<'a> {
    let mut keys = Vec::new();
    let is_wide = area.width >= WIDE;
    let mut key = |name: String, meaning: &'static str, short: &'static str| {
        keys.push(Span::styled(format!(" {name} "), Style::new().fg(Color::Black).bg(QUIET)));
        keys.push(Span::raw(format!(" {}  ", if is_wide { meaning } else { short })));
    };
    if !snapshot.tour.steps.is_empty() {
        key(format!("1-{}", snapshot.tour.steps.len()), "take a step of the tour", "step");
        key("0".to_owned(), "take it back", "back");
        let objects = if chosen.objects_alone { "everything" } else { "its YAML alone" };
        key("y".to_owned(), objects, if chosen.objects_alone { "all" } else { "YAML" });
    }
    match chosen.ends_mesh {
        true => key("q".to_owned(), "end the mesh", "end"),
        false => key("q".to_owned(), "leave it running", "leave"),
    }
    keys.push(Span::styled(chosen.words.as_str(), Style::new().fg(ACCENT)));
    Paragraph::new(Line::from(keys))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::metrics::{Call, Traffic};
    use crate::snapshot::{HeldObject, LogLine, StepState, StepStatus, TourStatus, UnitKind, UnitStatus};

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
        let idle = ServiceTraffic { service: "cart".to_owned(), ..ServiceTraffic::default() };
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
            traffic: Traffic { services: vec![service, idle], calls: vec![call] },
            pushes: vec![push],
            quarantined: vec![HeldObject {
                object: "EnvoyFilter/shop/bad".to_owned(),
                reason: "no such field".to_owned(),
            }],
            control_plane: true,
            log: vec![LogLine { process: "web".to_owned(), text: "hello".to_owned() }],
            tour: TourStatus {
                steps: vec![step],
                lines: vec!["Shift traffic".to_owned(), "  v1 90 %".to_owned()],
                command: "$ cp tour/shift.yaml config/".to_owned(),
                applied: "# why\nkind: VirtualService\nspec:\n  hosts: [reviews]\n".to_owned(),
            },
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
            "🔒",
            "cart ",
            "kind: VirtualService",
            "  hosts: [reviews]",
            "cp tour/shift.yaml config/",
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
    fn small_terminal_shows_the_step_and_its_objects_first() {
        let screen = screen(80, 24);
        for text in [
            "Shift traffic",
            "v1 90 %",
            "kind: VirtualService",
            "hosts: [reviews]",
            "reviews",
            "cart: ./cart: no such program",
        ] {
            assert!(screen.contains(text), "{text} is not in\n{screen}");
        }
    }

    #[test]
    fn objects_that_do_not_fit_have_the_screen_for_themselves() {
        let mut snapshot = snapshot();
        snapshot.tour.applied = (1..=18).map(|line| format!("line: {line}\n")).collect();
        let draw_with = |chosen: &Chosen| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| draw(frame, &snapshot, chosen)).unwrap();
            terminal.backend().to_string()
        };
        let beside = draw_with(&Chosen::default());
        assert!(beside.contains("line: 1 ") && beside.contains("of 18 lines"), "{beside}");
        let alone = draw_with(&Chosen { objects_alone: true, ..Chosen::default() });
        assert!(alone.contains("line: 18"), "{alone}");
    }

    #[test]
    fn screen_of_any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            screen(width, height);
        }
    }
}
