//! One event as one line, in Istio's text columns or as a JSON object.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use super::level::Level;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

/// The fields of a log line.
pub(super) struct Record<'a> {
    pub(super) time: Timestamp,
    pub(super) level: Level,
    /// Absent for the default scope, whose name is not printed.
    pub(super) scope: Option<&'a str>,
    pub(super) caller: Option<String>,
    pub(super) message: &'a str,
    /// In the order they were recorded.
    pub(super) fields: Vec<(&'static str, Value)>,
    pub(super) stack: Option<String>,
}

impl Record<'_> {
    /// The finished line, with its line end.
    pub(super) fn render(self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => self.json(),
        }
    }

    fn text(self) -> String {
        let mut line = format!("{:.6}\t{}\t", self.time, self.level);
        for column in [self.scope, self.caller.as_deref()].into_iter().flatten() {
            line.push_str(column);
            line.push('\t');
        }
        push_single_line(&mut line, self.message);

        let mut separator = '\t';
        for (name, value) in &self.fields {
            line.push(separator);
            separator = ' ';
            line.push_str(name);
            line.push('=');
            match value {
                Value::String(text) => push_single_line(&mut line, text),
                other => write!(line, "{other}").expect("writing to a string cannot fail"),
            }
        }
        line.push('\n');
        if let Some(stack) = self.stack {
            line.push_str(stack.trim_end());
            line.push('\n');
        }
        line
    }

    fn json(self) -> String {
        let mut line = format!(r#"{{"level":"{}","time":"{:.6}""#, self.level, self.time);
        let mut push = |key: &str, value: &Value| {
            write!(line, ",{}:{value}", Value::from(key)).expect("writing to a string cannot fail");
        };
        if let Some(scope) = self.scope {
            push("scope", &Value::from(scope));
        }
        if let Some(caller) = self.caller {
            push("caller", &Value::from(caller));
        }
        push("msg", &Value::from(self.message));
        for (key, value) in &self.fields {
            push(key, value);
        }
        if let Some(stack) = self.stack {
            push("stack", &Value::from(stack));
        }
        line.push_str("}\n");
        line
    }
}

/// Keeps an event on its line, so that text from outside cannot pass for another event.
fn push_single_line(line: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

/// `dir/file.rs:12` of a path as the compiler gives it.
pub(super) fn short_location(file: &str, line: u32) -> String {
    let start = file.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
    format!("{}:{line}", &file[start..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn record(message: &str) -> Record<'_> {
        Record {
            time: Timestamp::from_microsecond(1_767_323_045_000_100).unwrap(),
            level: Level::Info,
            scope: Some("ads"),
            caller: None,
            message,
            fields: Vec::new(),
            stack: None,
        }
    }

    fn fields() -> Vec<(&'static str, Value)> {
        vec![("proxy", json!("a.b")), ("size", json!(12)), ("full", json!(true))]
    }

    #[test]
    fn text_has_istio_columns() {
        let record = Record { fields: fields(), ..record("pushed") };
        assert_eq!(
            record.render(Format::Text),
            "2026-01-02T03:04:05.000100Z\tinfo\tads\tpushed\tproxy=a.b size=12 full=true\n"
        );
    }

    #[test]
    fn default_scope_has_no_column() {
        let record = Record { scope: None, ..record("started") };
        assert_eq!(record.render(Format::Text), "2026-01-02T03:04:05.000100Z\tinfo\tstarted\n");
    }

    #[test]
    fn text_shows_caller_before_message_and_stack_below() {
        let record =
            Record { caller: Some("src/a.rs:3".into()), stack: Some("0: main\n".into()), ..record("x") };
        assert_eq!(
            record.render(Format::Text),
            "2026-01-02T03:04:05.000100Z\tinfo\tads\tsrc/a.rs:3\tx\n0: main\n"
        );
    }

    #[test]
    fn json_has_istio_keys_in_order() {
        let record = Record { fields: fields(), caller: Some("src/a.rs:3".into()), ..record("pushed") };
        assert_eq!(
            record.render(Format::Json),
            concat!(
                r#"{"level":"info","time":"2026-01-02T03:04:05.000100Z","scope":"ads","caller":"src/a.rs:3","#,
                r#""msg":"pushed","proxy":"a.b","size":12,"full":true}"#,
                "\n"
            )
        );
    }

    #[test]
    fn location_keeps_last_directory() {
        assert_eq!(short_location("crates/xds/src/server.rs", 7), "src/server.rs:7");
        assert_eq!(short_location("server.rs", 7), "server.rs:7");
    }

    proptest! {
        #[test]
        fn any_message_stays_on_one_line(message in any::<String>(), value in any::<String>()) {
            let with_field = || Record {
                fields: vec![("key", Value::from(value.clone()))],
                ..record(&message)
            };
            for format in [Format::Text, Format::Json] {
                let line = with_field().render(format);
                prop_assert_eq!(line.lines().count(), 1);
            }
            let parsed: Value = serde_json::from_str(&with_field().render(Format::Json)).unwrap();
            prop_assert_eq!(&parsed["msg"], &Value::from(message.clone()));
            prop_assert_eq!(&parsed["key"], &Value::from(value.clone()));
        }
    }
}
