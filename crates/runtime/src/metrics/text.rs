//! The Prometheus text format, byte for byte as Istio's Go exporter writes it.

use std::fmt::Write as _;

use super::desc::{Description, Reading, Series};

/// `Content-Type` of [`Registry::encode`](super::Registry::encode).
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// One exported metric: its name with prefix, its description and its series.
pub(super) struct Exported {
    pub(super) name: String,
    pub(super) description: Description,
    pub(super) series: Vec<Series>,
}

impl Exported {
    pub(super) fn write(&self, out: &mut String) {
        let kind = self.description.kind.as_str();
        let name = &self.name;
        out.push_str("# HELP ");
        out.push_str(name);
        out.push(' ');
        push_escaped(out, self.description.help, false);
        push_all(out, &["\n# TYPE ", name, " ", kind, "\n"]);
        for Series { labels, reading } in &self.series {
            match reading {
                Reading::Number(value) => self.sample(out, "", labels, None, *value),
                Reading::Distribution { counts, sum } => self.distribution(out, labels, counts, *sum),
            }
        }
    }

    fn distribution(&self, out: &mut String, labels: &[Box<str>], counts: &[u64], sum: f64) {
        let bounds = self.description.buckets.iter().copied().chain([f64::INFINITY]);
        let mut total = 0;
        for (bound, count) in bounds.zip(counts) {
            total += count;
            self.sample(out, "_bucket", labels, Some(bound), total as f64);
        }
        self.sample(out, "_sum", labels, None, sum);
        self.sample(out, "_count", labels, None, total as f64);
    }

    fn sample(&self, out: &mut String, suffix: &str, labels: &[Box<str>], bound: Option<f64>, value: f64) {
        push_all(out, &[&self.name, suffix]);
        let mut separator = '{';
        let mut label = |name: &str, value: &str| {
            out.push(separator);
            separator = ',';
            push_all(out, &[name, "=\""]);
            push_escaped(out, value, true);
            out.push('"');
        };
        for (name, value) in self.description.labels.iter().zip(labels) {
            label(name, value);
        }
        if let Some(bound) = bound {
            label("le", &go_float(bound));
        }
        if separator == ',' {
            out.push('}');
        }
        push_all(out, &[" ", &go_float(value), "\n"]);
    }
}

fn push_all(out: &mut String, parts: &[&str]) {
    out.extend(parts.iter().copied());
}

fn push_escaped(out: &mut String, text: &str, quotes: bool) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str(r"\\"),
            '\n' => out.push_str(r"\n"),
            '"' if quotes => out.push_str(r#"\""#),
            other => out.push(other),
        }
    }
}

/// The shortest decimal that reads back as this number, with an exponent where Go writes one.
fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let mut text = String::with_capacity(digits.len() + 4);
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(text, "{digits}e{sign}{:02}", exponent.abs()).expect("writing to a string cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_look_as_in_go() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (34_471_936.0, "3.4471936e+07"),
            (-1.5e300, "-1.5e+300"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(go_float(value), text);
        }
    }

    proptest! {
        #[test]
        fn numbers_read_back(value in any::<f64>()) {
            let read: f64 = go_float(value).parse().unwrap();
            prop_assert!(read == value || (read.is_nan() && value.is_nan()));
        }
    }
}
