//! The Go program, and the same question put to this crate.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use canopus_gotemplate::{Functions, Limits, MissingKey, Templates, Value, helm, sprig};
use canopus_parts::Part;

/// A template to render, as JSON for the one and as values for the other.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) template: String,
    /// JSON.
    pub(crate) data: serde_json::Value,
    pub(crate) missing: &'static str,
    pub(crate) functions: &'static str,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Output(Vec<u8>),
    Parse(String),
    Error(String),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Output(text) => write!(f, "{:?}", String::from_utf8_lossy(text)),
            Self::Parse(error) => write!(f, "parse error {error}"),
            Self::Error(error) => write!(f, "error {error}"),
        }
    }
}

impl Request {
    pub(crate) fn new(template: impl Into<String>, data: &serde_json::Value) -> Self {
        Self { template: template.into(), data: data.clone(), missing: "", functions: "helm" }
    }

    pub(crate) fn render(&self) -> Answer {
        let mut functions = Functions::builtin();
        match self.functions {
            "sprig" => sprig::add_to(&mut functions, &sprig::Options::default()),
            "helm" => helm::add_to(&mut functions, &sprig::Options::default()),
            _ => {}
        }
        let missing = match self.missing {
            "zero" => MissingKey::Zero,
            "error" => MissingKey::Error,
            _ => MissingKey::Default,
        };
        let mut templates =
            Templates::new("set", functions).with_missing_key(missing).with_limits(Limits::default());
        if let Err(error) = templates.parse("main", &self.template) {
            return Answer::Parse(error.to_string());
        }
        match templates.render("main", &Value::from(self.data.clone())) {
            Ok(text) => Answer::Output(text),
            Err(error) => Answer::Error(error.to_string()),
        }
    }
}

/// The running Go program.
pub(crate) struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts it, after building it the first time. Without Go there is nothing to compare with.
    pub(crate) fn start() -> Option<Self> {
        if Command::new("go").arg("version").output().is_err() {
            println!("skipped: Go is missing, so there is nothing to compare with");
            return None;
        }
        canopus_parts::ensure_in_lines(&[Part::GoTemplate]).unwrap();
        let program = canopus_parts::find(Part::GoTemplate).unwrap().join("gotemplate");
        let mut child = Command::new(program)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Self { child, input, output: BufReader::new(output) })
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Answer {
        let line = serde_json::json!({
            "templates": {"main": request.template},
            "data": request.data,
            "missing": request.missing,
            "functions": request.functions,
        });
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let text = |key: &str| answer[key].as_str().map(str::to_owned);
        if let Some(error) = text("parse") {
            return Answer::Parse(error);
        }
        if let Some(error) = text("error") {
            return Answer::Error(error);
        }
        Answer::Output(decode(&text("output").unwrap_or_default()))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Base 64, which the answers come in.
fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
