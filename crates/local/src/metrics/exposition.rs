//! The text format of Prometheus, as far as proxies use it.

/// A line with a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row<'a> {
    /// Name of the metric.
    pub(super) name: &'a str,
    /// Labels.
    pub(super) labels: Vec<(&'a str, String)>,
    /// Value.
    pub(super) value: f64,
}

impl Row<'_> {
    /// The value of a label; empty if there is none.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
    }
}

/// The rows of metrics whose name begins with `prefix`. Lines that are not as expected are left out.
pub(super) fn rows<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = Row<'a>> {
    text.lines().filter(move |line| line.starts_with(prefix)).filter_map(row)
}

fn row(line: &str) -> Option<Row<'_>> {
    let Some((name, mut rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some(Row { name, labels: Vec::new(), value: number(value)? });
    };
    let mut labels = Vec::new();
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, after) = quoted(after)?;
        labels.push((key.trim_start_matches(','), value));
        rest = after;
        if rest.starts_with('}') {
            break;
        }
    }
    Some(Row { name, labels, value: number(rest.strip_prefix('}')?.trim_start())? })
}

/// A value may be followed by a time.
fn number(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

/// The text up to the next quote that is not escaped, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_labels_and_values() {
        let text =
            "# TYPE a counter\nistio_a{x=\"1\",y=\"q\\\"}\"} 4 1700\nistio_b 2\nother 1\nistio_c{x=\"1} 3\n";
        let found: Vec<Row<'_>> = rows(text, "istio_").collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].label("x"), found[0].label("y"), found[0].value), ("1", "q\"}", 4.0));
        assert_eq!((found[1].name, found[1].value), ("istio_b", 2.0));
    }
}
