//! The ratios of a report as a picture.

use std::fmt::Write as _;

use crate::report::Report;
use crate::row::Row;

/// Figures that are drawn, by scenario and name; the others stand in the table.
const DRAWN: [(&str, &str); 20] = [
    ("S1", "process start to ready"),
    ("S2", "last proxy has all it asked for"),
    ("S2", "processor time of the subject"),
    ("S3", "with all proxies"),
    ("S3", "each further proxy"),
    ("S4", "write to last ACK, p50"),
    ("S4", "write to last ACK, p99"),
    ("S4", "processor time of the subject, each change"),
    ("S5", "50 a second, cores of the subject"),
    ("S5", "200 a second, cores of the subject"),
    ("S6", "seen by all, write to last ACK, p50"),
    ("S6", "seen by all, processor time of the subject, each edit"),
    ("S7", "service added, write to last ACK, p50"),
    ("S8", "write to last ACK, p50"),
    ("S9", "processor time of the subject"),
    ("S10", "processor time of the subject, each pod"),
    ("S11", "EnvoyFilter for one label, write to last ACK, p50"),
    ("S11", "EnvoyFilter for one label, processor time of the subject, each change"),
    ("S12", "zone lost, first write to last ACK"),
    ("S12", "zone lost, processor time of the subject"),
];

const LINE: f64 = 26.0;
const TOP: f64 = 64.0;
const LEFT: f64 = 560.0;
/// The width of a factor of ten.
const DECADE: f64 = 120.0;
const WIDTH: f64 = LEFT + 3.6 * DECADE;

/// A bar for each ratio, on a logarithmic scale: how many times canopusd's figure the peer's is.
pub(crate) fn draw(report: &Report) -> String {
    let rows: Vec<(Row, f64)> = report
        .rows()
        .into_iter()
        .filter(is_drawn)
        .filter_map(|row| row.ratio.map(|ratio| (row, ratio)))
        .collect();
    let height = TOP + LINE * rows.len() as f64 + 16.0;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13" fill="#777">
<text x="12" y="22" font-size="15">Peer ÷ canopusd: how many times as much (longer is better for canopusd)</text>
<text x="12" y="42">{}</text>
"##,
        escape(&report.heading())
    );
    for (decade, label) in ["1×", "10×", "100×", "1000×"].iter().enumerate() {
        let x = LEFT + decade as f64 * DECADE;
        let _ = writeln!(svg, r##"<path d="M{x} {TOP}V{height}" stroke="#bbb" stroke-dasharray="2 3"/>"##);
        let _ = writeln!(svg, r#"<text x="{x}" y="{}" text-anchor="middle">{label}</text>"#, TOP - 4.0);
    }
    for (at, (row, ratio)) in rows.iter().enumerate() {
        draw_row(&mut svg, TOP + LINE * at as f64, row, *ratio);
    }
    svg + "</svg>\n"
}

fn draw_row(svg: &mut String, y: f64, row: &Row, ratio: f64) {
    let length = (ratio.max(1e-3).log10() * DECADE).clamp(-DECADE / 2.0, 3.2 * DECADE);
    let (x, width) = if length < 0.0 { (LEFT + length, -length) } else { (LEFT, length.max(1.0)) };
    let colour = if ratio < 1.0 { "#c44e52" } else { "#4c72b0" };
    let label = format!("{}: {}", row.scenario.title(), row.name);
    let values = [&row.ours, &row.theirs].map(|value| value.clone().unwrap_or_default());
    let text = y + 17.0;
    let _ =
        writeln!(svg, r#"<text x="{}" y="{text}" text-anchor="end">{}</text>"#, LEFT - 8.0, escape(&label));
    let _ = writeln!(
        svg,
        r#"<rect x="{x:.1}" y="{}" width="{width:.1}" height="18" fill="{colour}"><title>{} and {}</title></rect>"#,
        y + 4.0,
        values[0],
        values[1]
    );
    let shown = if ratio < 10.0 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") };
    let _ = writeln!(svg, r#"<text x="{:.1}" y="{text}">{shown}</text>"#, LEFT + length.max(0.0) + 6.0);
}

fn is_drawn(row: &Row) -> bool {
    DRAWN.iter().any(|(scenario, name)| is_called(row, scenario) && row.name == *name)
}

/// Titles begin with the number of the scenario.
fn is_called(row: &Row, number: &str) -> bool {
    row.scenario.title().split(' ').next() == Some(number)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;
    use crate::figure::Figure;
    use crate::fixture::tests::UNIFORM;
    use crate::options::Options;
    use crate::report::Measurement;
    use crate::scenario::Scenario;
    use crate::subject::Subject;

    #[test]
    fn bars_are_as_long_as_their_ratio_and_red_below_one() {
        let mut report = Report::new(UNIFORM, &Options::parse_from(["canopus-bench"]));
        let names = ["write to last ACK, p50", "write to last ACK, p99", "write to ACK of each proxy, p50"];
        for (subject, seconds) in [(Subject::Canopusd, [1, 2, 1]), (Subject::Peer, [10, 1, 1])] {
            let figures = names.into_iter().zip(seconds);
            let figures = figures.map(|(name, seconds)| Figure::time(name, Duration::from_secs(seconds)));
            report.add(Measurement { scenario: Scenario::S4, subject, round: 0, figures: figures.collect() });
        }
        let svg = draw(&report);
        assert_eq!(svg.matches("<rect").count(), 2, "what is not drawn stands in the table: {svg}");
        assert!(svg.contains(r##"width="120.0" height="18" fill="#4c72b0""##), "{svg}");
        assert!(svg.contains("#c44e52") && svg.contains(">10×<") && svg.contains(">0.5×<"), "{svg}");
    }
}
