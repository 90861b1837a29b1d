use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is printed while `act` runs, as JSON objects without their time.
fn lines(scopes: &Scopes, act: impl FnOnce()) -> Vec<Value> {
    let text = output(scopes, Format::Json, act);
    let parse = |line: &str| {
        let mut object: Value = serde_json::from_str(line).expect("each line is an object");
        object.as_object_mut().unwrap().remove("time").expect("each line has a time");
        object
    };
    text.lines().map(parse).collect()
}

fn output(scopes: &Scopes, format: Format, act: impl FnOnce()) -> String {
    let buffer = Buffer::default();
    let sink = Sink::start(vec![Target::new("buffer", buffer.clone())], format).unwrap();
    tracing::subscriber::with_default(subscriber(scopes, sink.clone(), format), act);
    assert!(sink.flush(Duration::from_secs(30)));
    let bytes = buffer.0.lock().clone();
    String::from_utf8(bytes).unwrap()
}

fn scopes() -> Scopes {
    let scopes = Scopes::new();
    scopes.register(&[Scope::new("ads", "Discovery streams")]);
    scopes
}

#[test]
fn prints_scope_message_and_typed_fields() {
    let printed = lines(&scopes(), || {
        tracing::info!(target: "ads", proxy = "a.b", size = 3, full = true, node = ?["x"], "pushed {}", "cds");
    });
    assert_eq!(
        printed,
        [json!({
            "level": "info", "scope": "ads", "msg": "pushed cds",
            "proxy": "a.b", "size": 3, "full": true, "node": "[\"x\"]",
        })]
    );
}

#[test]
fn prints_text_in_columns() {
    let printed = output(&scopes(), Format::Text, || tracing::warn!(target: "ads", n = 1, "odd"));
    let columns: Vec<_> = printed.trim_end().split('\t').collect();
    assert_eq!(columns[1..], ["warn", "ads", "odd", "n=1"]);
    assert_eq!(columns[0].len(), "2026-01-02T03:04:05.000100Z".len());
}

#[test]
fn adds_the_fields_of_spans_around() {
    let printed = lines(&scopes(), || {
        let stream = tracing::info_span!(target: "ads", "stream", id = 7, proxy = tracing::field::Empty);
        let _inside = stream.enter();
        stream.record("proxy", "a.b");
        tracing::info!(target: "ads", nonce = "n", "request");
    });
    assert_eq!(
        printed,
        [json!({"level": "info", "scope": "ads", "msg": "request", "id": 7, "proxy": "a.b", "nonce": "n"})]
    );
}

#[test]
fn follows_a_level_changed_while_running() {
    fn chatter() {
        tracing::debug!(target: "ads", "detail");
    }
    let scopes = scopes();
    let printed = lines(&scopes, || {
        chatter();
        scopes.set("ads", Level::Debug).unwrap();
        chatter();
        scopes.set("ads", Level::None).unwrap();
        chatter();
    });
    assert_eq!(printed, [json!({"level": "debug", "scope": "ads", "msg": "detail"})]);
}

#[test]
fn keeps_scopes_apart() {
    let scopes = scopes();
    scopes.set("ads", Level::Error).unwrap();
    let printed = lines(&scopes, || {
        tracing::info!(target: "ads", "hidden");
        tracing::info!(target: "h2::codec", "hidden as well");
        tracing::trace!("finer than debug");
        tracing::info!("shown");
    });
    assert_eq!(printed, [json!({"level": "info", "msg": "shown"})]);
}

#[test]
fn adds_caller_and_stack_where_asked() {
    let scopes = scopes();
    scopes.set_callers("ads", true).unwrap();
    scopes.set_stack_trace("ads", Level::Error).unwrap();
    let printed = lines(&scopes, || {
        tracing::info!(target: "ads", "fine");
        tracing::error!(target: "ads", "broken");
    });
    let caller = printed[0]["caller"].as_str().unwrap();
    assert!(caller.starts_with("log/tests.rs:"), "{caller}");
    assert_eq!(printed[0].get("stack"), None);
    assert!(printed[1]["stack"].as_str().unwrap().contains("adds_caller_and_stack_where_asked"));
}

#[test]
fn shortens_what_is_too_long() {
    let printed = lines(&scopes(), || tracing::info!("{}", "é".repeat(100_000)));
    let message = printed[0]["msg"].as_str().unwrap();
    assert!(message.len() < 20_000);
    assert!(message.ends_with("é…"));
}
