//! The tracing layer: collects an event's fields and those of the spans around it, and hands the line to the sink.

use std::backtrace::Backtrace;
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope as SpanScope};

use super::format::{Format, Record, short_location};
use super::level::Level;
use super::scopes::{DEFAULT_SCOPE, Scopes};
use super::sink::Sink;

/// Longest message or field value that is printed whole.
const MAX_TEXT: usize = 16 * 1024;

/// Prints every event that reaches it; what reaches it is the filter's decision.
pub(super) struct LogLayer {
    scopes: Scopes,
    sink: Sink,
    format: Format,
}

impl LogLayer {
    pub(super) fn new(scopes: Scopes, sink: Sink, format: Format) -> Self {
        LogLayer { scopes, sink, format }
    }
}

impl<S> Layer<S> for LogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &SpanRecord<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let Some(level) = Level::from_tracing(*metadata.level()) else {
            return;
        };
        let (scope, settings) = self.scopes.resolve(metadata.target());

        let mut own = Fields::default();
        event.record(&mut own);
        let mut fields = Vec::new();
        for span in context.event_scope(event).into_iter().flat_map(SpanScope::from_root) {
            if let Some(around) = span.extensions().get::<Fields>() {
                fields.extend(around.named.iter().cloned());
            }
        }
        fields.extend(own.named);

        let location = metadata.file().zip(metadata.line()).filter(|_| settings.callers);
        let record = Record {
            time: Timestamp::now(),
            level,
            scope: (scope != DEFAULT_SCOPE).then_some(scope),
            caller: location.map(|(file, line)| short_location(file, line)),
            message: &own.message,
            fields,
            stack: (level <= settings.stack).then(|| Backtrace::force_capture().to_string()),
        };
        self.sink.write(record.render(self.format));
    }
}

/// What was recorded on an event or a span.
#[derive(Default)]
struct Fields {
    message: String,
    named: Vec<(&'static str, Value)>,
}

impl Fields {
    fn text(&mut self, field: &Field, text: String) {
        let text = shortened(text);
        if field.name() == "message" {
            self.message = text;
        } else {
            self.set(field, Value::from(text));
        }
    }

    fn set(&mut self, field: &Field, value: Value) {
        match self.named.iter_mut().find(|(name, _)| *name == field.name()) {
            Some(slot) => slot.1 = value,
            None => self.named.push((field.name(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}
