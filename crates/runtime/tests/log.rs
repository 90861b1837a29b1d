//! The log of a whole process: there can be only one, so all of it is one test.

use std::fs;

use canopus_runtime::log::{self, LogError, LogFlags, Scope, Scopes};
use serde_json::Value;

#[test]
fn installed_log_prints_events_warnings_and_panics_until_its_guard_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let flags = LogFlags {
        log_target: vec![path.to_str().unwrap().to_owned()],
        log_as_json: true,
        log_output_level: "ads:debug,unheard-of:debug".to_owned(),
        ..LogFlags::default()
    };
    let scopes = Scopes::new();
    scopes.register(&[Scope::new("ads", "Discovery streams")]);

    let guard = log::install(&scopes, &flags).unwrap();
    tracing::debug!(target: "ads", proxy = "a.b", "connected");
    let panicked = std::thread::spawn(|| panic!("broken")).join();
    assert!(panicked.is_err());
    assert!(matches!(log::install(&scopes, &flags), Err(LogError::Installed)));
    drop(guard);

    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<_> = lines.iter().map(|line| line["msg"].as_str().unwrap()).collect();
    assert_eq!(
        messages,
        ["unknown log scope \"unheard-of\": its settings are ignored", "connected", "panic: broken"]
    );
    assert_eq!(lines[1]["proxy"], "a.b");
    assert!(lines[2]["location"].as_str().unwrap().contains("tests/log.rs:"), "{}", lines[2]);
}
