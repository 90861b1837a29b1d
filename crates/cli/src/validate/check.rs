//! What is wrong with the objects of one text.

use canopus_api::decode::{Identity, Reason};
use canopus_api::registry::Category;
use canopus_api::validate::{self, locate, reader};
use canopus_api::{DecodeError, Kind, Object, Options, Problem};
use canopus_base::tree::{Limits, Map, Node, Pos, ReadErrorKind, Value};
use canopus_base::yaml;
use indicatif::ProgressBar;
use serde::Serialize;

use super::{operator, service};
use crate::global::Global;
use crate::input::Input;

/// What an object of the mesh may have at the top.
const TOP_LEVEL: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// All findings about one file.
#[derive(Debug)]
pub(crate) struct FileReport {
    /// The name of the file, or `-`.
    pub(crate) name: String,
    /// The text, for showing lines of it.
    pub(crate) text: Vec<u8>,
    /// How many objects were checked.
    pub(crate) checked: usize,
    /// What was found, in the order of the text.
    pub(crate) findings: Vec<Finding>,
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The rule, where there is one.
    pub(crate) code: Option<&'static str>,
    /// The object with the fault.
    pub(crate) object: Identity,
    /// The field; empty for the object or the text as a whole.
    pub(crate) path: String,
    /// Where to look.
    pub(crate) at: Pos,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) remedy: Option<String>,
    /// The list that the object is an item of.
    pub(crate) list: Option<Identity>,
    /// How istioctl says it.
    pub(crate) istioctl: Wording,
}

/// How istioctl says what we found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wording {
    /// Istio's words and ours are the same.
    Same,
    /// In words of its own.
    Own(String),
    /// Istio reports nothing.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Skipped, or worth knowing.
    Note,
    Warning,
    Error,
}

impl FileReport {
    pub(crate) fn is_valid(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// Whether istioctl finds nothing wrong.
    pub(crate) fn is_valid_to_istioctl(&self) -> bool {
        !self.findings.iter().any(|f| f.severity == Severity::Error && f.istioctl != Wording::Silent)
    }

    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Checks every object of a text.
pub(crate) fn file(input: &Input, global: &Global, progress: &ProgressBar) -> FileReport {
    let name = input.name();
    progress.set_message(name.clone());
    let mut report = FileReport { name, text: Vec::new(), checked: 0, findings: Vec::new() };
    match input.read() {
        Err(message) => report.findings.push(Finding::error(Identity::default(), Pos::default(), message)),
        Ok(text) => {
            let mut checker = Checker { global, report: &mut report, list: None, istioctl_gave_up: false };
            let mut seen = 0;
            for document in yaml::parse_all(&text, &Limits::default()) {
                match document {
                    Ok(document) => {
                        checker.document(&document.node);
                        progress.inc((document.text_range.end - seen) as u64);
                        seen = document.text_range.end;
                    }
                    Err(error) => checker.unreadable(&error),
                }
            }
            report.text = text;
        }
    }
    report
}

struct Checker<'a> {
    global: &'a Global,
    report: &'a mut FileReport,
    /// The list whose items are being checked.
    list: Option<Identity>,
    /// Whether there was something after which istioctl reads no further.
    istioctl_gave_up: bool,
}

impl Checker<'_> {
    fn add(&mut self, mut finding: Finding) {
        finding.list.clone_from(&self.list);
        if self.istioctl_gave_up {
            finding.istioctl = Wording::Silent;
        }
        self.report.findings.push(finding);
    }

    /// A document that is no tree. istioctl reads no further.
    fn unreadable(&mut self, error: &yaml::Error) {
        let theirs = match &error.kind {
            ReadErrorKind::DuplicateKey { .. } => {
                format!("yaml: unmarshal errors:\n  line {}: {}", error.at.line, error.kind)
            }
            ReadErrorKind::Syntax(what) => format!("yaml: line {}: {what}", error.at.line),
            other => format!("yaml: {other}"),
        };
        self.undecoded(
            error.at,
            &error.kind.to_string(),
            &format!("error converting YAML to JSON: {theirs}"),
        );
    }

    fn undecoded(&mut self, at: Pos, message: &str, theirs: &str) {
        let name = &self.report.name;
        // Parity: two blanks.
        let istioctl = Wording::Own(format!("failed to decode file {name}:  {theirs}"));
        let message = format!("failed to decode file {name}: {message}");
        self.add(Finding { istioctl, ..Finding::error(Identity::default(), at, message) });
        self.istioctl_gave_up = true;
    }

    fn document(&mut self, node: &Node) {
        if node.is_null() {
            return;
        }
        if node.as_map().is_none() {
            let found = node.kind_name();
            let theirs = format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                if found == "list" { "array" } else { found }
            );
            return self.undecoded(node.at, &format!("expected an object, found a {found}"), &theirs);
        }
        let is_list = node.get("kind").and_then(Node::as_str).is_some_and(|kind| kind.ends_with("List"));
        match node.get("items").and_then(Node::as_list) {
            Some(items) if is_list => {
                self.list = Some(Identity::read(node));
                items.iter().for_each(|item| self.object(item));
                self.list = None;
            }
            _ => self.object(node),
        }
    }

    fn object(&mut self, node: &Node) {
        let identity = Identity::read(node);
        let mesh_namespace = &self.global.istio_namespace;
        // Parity: to these, the kind alone matters.
        let found = match &*identity.kind {
            "Service" => service::check(node, &identity, mesh_namespace),
            "Deployment" => service::deployment(node, &identity, mesh_namespace).into_iter().collect(),
            _ => Vec::new(),
        };
        found.into_iter().for_each(|finding| self.add(finding));
        match Kind::lookup(&identity.api_version, &identity.kind) {
            Ok(kind) if kind.info().category == Category::Istio => self.istio(kind, node, &identity),
            Ok(kind) if kind.info().category == Category::GatewayApi => self.gateway_api(node),
            Ok(Kind::Service | Kind::Deployment) => self.report.checked += 1,
            // Kubernetes' own kinds are the API server's to check.
            Ok(_) => {}
            Err(_) if operator::is_operator(&identity) => {
                self.report.checked += 1;
                operator::check(node, &identity).into_iter().for_each(|finding| self.add(finding));
            }
            Err(_) => self.other(node),
        }
    }

    fn istio(&mut self, kind: Kind, node: &Node, identity: &Identity) {
        self.report.checked += 1;
        let node = self.in_namespace(node, identity);
        let object = match Object::decode(&node, Options::strict()) {
            Ok(decoded) => decoded.value,
            Err(error) => {
                let spec = node.get("spec").cloned().unwrap_or_default();
                let theirs = reader::read_spec(kind, &spec).unwrap_or_else(Some);
                return self.undecodable(&error, theirs);
            }
        };
        let unknown = unknown_keys(&node, identity);
        if !unknown.is_empty() {
            return unknown.into_iter().for_each(|finding| self.add(finding));
        }
        let found = validate::validate_document(&object, &node);
        let errors = found.errors.iter().map(|finding| (Severity::Error, finding));
        let warnings = found.warnings.iter().map(|finding| (Severity::Warning, finding));
        for (severity, finding) in errors.chain(warnings) {
            // Parity: istioctl does not look at Istio's objects in a list.
            let is_said = !finding.ours && self.list.is_none();
            self.add(Finding {
                severity,
                code: Some(finding.code.id),
                path: finding.path.clone(),
                remedy: Some(finding.code.remedy.to_owned()).filter(|remedy| !remedy.is_empty()),
                istioctl: if is_said { Wording::Same } else { Wording::Silent },
                ..Finding::error(
                    identity.clone(),
                    locate(&node, &finding.path),
                    finding.message.clone().into_owned(),
                )
            });
        }
    }

    /// Objects of Gateway API are checked by the cluster; here only whether they can be read.
    fn gateway_api(&mut self, node: &Node) {
        self.report.checked += 1;
        if let Err(error) = Object::decode(node, Options::strict()) {
            let theirs = error.problems().first().map(|problem| problem.message.clone());
            self.undecodable(&error, theirs);
        }
    }

    /// What is acceptable can depend on the namespace, so an object that names none is taken to be in the chosen one.
    fn in_namespace(&self, node: &Node, identity: &Identity) -> Node {
        let mut node = node.clone();
        if identity.namespace.is_empty()
            && let Some(Value::Map(metadata)) = node.get_mut("metadata").map(|metadata| &mut metadata.value)
        {
            let namespace = if self.global.namespace.is_empty() { "default" } else { &self.global.namespace };
            metadata.insert("namespace", Value::from(namespace).into());
        }
        node
    }

    /// An object that cannot be read, for which istioctl has one reason at most.
    fn undecodable(&mut self, error: &DecodeError, theirs: Option<String>) {
        let mut theirs = theirs
            .filter(|_| self.list.is_none())
            .map(|why| Wording::Own(format!("cannot parse proto message: {why}")));
        let mut wording = || theirs.take().unwrap_or(Wording::Silent);
        let finding = |at, message| Finding::error(Identity::clone(&error.object), at, message);
        let mut found: Vec<Finding> = error
            .problems()
            .iter()
            .map(|problem: &Problem| Finding {
                path: problem.path.clone(),
                remedy: problem.remedy.as_ref().map(ToString::to_string),
                istioctl: wording(),
                ..finding(problem.at, problem.message.clone())
            })
            .collect();
        if found.is_empty() {
            found.push(Finding { istioctl: wording(), ..finding(error.at, error.to_string()) });
        }
        found.into_iter().for_each(|finding| self.add(finding));
    }

    /// Passes over a document that is not an object of the mesh, as istioctl does.
    fn other(&mut self, node: &Node) {
        match Object::decode(node, Options::lenient()) {
            Err(error) if matches!(error.reason, Reason::UnknownKind) => self.add(Finding {
                severity: Severity::Note,
                istioctl: Wording::Silent,
                ..Finding::error(
                    Identity::clone(&error.object),
                    error.at,
                    "not a kind the mesh reads: skipped".to_owned(),
                )
            }),
            Err(error) => self.undecodable(&error, None),
            Ok(_) => {}
        }
    }
}

/// Keys at the top of an object that no object has there.
pub(crate) fn unknown_keys(node: &Node, identity: &Identity) -> Vec<Finding> {
    let entries = node.as_map().into_iter().flat_map(Map::iter);
    let unknown = entries.filter(|entry| !TOP_LEVEL.contains(&&*entry.key));
    unknown
        .map(|entry| Finding::error(identity.clone(), entry.key_at, format!("unknown field {:?}", entry.key)))
        .collect()
}

impl Finding {
    pub(crate) fn error(object: Identity, at: Pos, message: String) -> Self {
        Self {
            severity: Severity::Error,
            code: None,
            object,
            path: String::new(),
            at,
            message,
            remedy: None,
            list: None,
            istioctl: Wording::Same,
        }
    }
}
