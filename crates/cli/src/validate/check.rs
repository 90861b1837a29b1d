//! What is wrong with the objects of one text.

use canopus_api::decode::{Identity, Reason};
use canopus_api::registry::Category;
use canopus_api::validate::{self, locate};
use canopus_api::{DecodeError, Kind, Object, Options, Problem};
use canopus_base::tree::{Limits, Map, Node, Pos, Value};
use canopus_base::yaml;
use indicatif::ProgressBar;
use serde::Serialize;

use super::service;
use crate::command::Global;
use crate::input::Input;

/// What an object of the mesh may have at the top.
const TOP_LEVEL: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Everything found in one text.
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
    /// Whose it is.
    pub(crate) object: Identity,
    /// The field; empty for the object or the text as a whole.
    pub(crate) path: String,
    /// Where to look.
    pub(crate) at: Pos,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) remedy: Option<String>,
    /// Whether istioctl would say it too.
    pub(crate) in_istioctl: bool,
    /// What istioctl puts before it.
    pub(crate) istioctl_prefix: &'static str,
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
            let mut checker = Checker { global, report: &mut report };
            let mut seen = 0;
            for document in yaml::parse_all(&text, &Limits::default()) {
                match document {
                    Ok(document) => {
                        checker.document(&document.node);
                        progress.inc((document.text_range.end - seen) as u64);
                        seen = document.text_range.end;
                    }
                    Err(error) => checker.unreadable(error.at, &error.kind.to_string()),
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
}

impl Checker<'_> {
    fn unreadable(&mut self, at: Pos, message: &str) {
        let message = format!("failed to decode file {}: {message}", self.report.name);
        self.report.findings.push(Finding::error(Identity::default(), at, message));
    }

    fn document(&mut self, node: &Node) {
        let is_list = node.get("kind").and_then(Node::as_str).is_some_and(|kind| kind.ends_with("List"));
        match node.get("items").and_then(Node::as_list) {
            Some(items) if is_list => items.iter().for_each(|item| self.object(item)),
            _ => self.object(node),
        }
    }

    fn object(&mut self, node: &Node) {
        let identity = Identity::of(node);
        match Kind::of(&identity.api_version, &identity.kind) {
            Ok(kind) if kind.info().category == Category::Istio => self.istio(node, &identity),
            Ok(Kind::Service) => {
                self.report.checked += 1;
                self.report.findings.extend(service::check(node, &identity, &self.global.istio_namespace));
            }
            Ok(Kind::Deployment) => {
                self.report.checked += 1;
                self.report.findings.extend(service::deployment(
                    node,
                    &identity,
                    &self.global.istio_namespace,
                ));
            }
            // Kubernetes' own kinds are the API server's to check.
            Ok(_) => {}
            Err(_) => self.other(node),
        }
    }

    fn istio(&mut self, node: &Node, identity: &Identity) {
        self.report.checked += 1;
        let node = self.in_namespace(node, identity);
        let object = match Object::decode(&node, Options::strict()) {
            Ok(decoded) => decoded.value,
            Err(error) => return self.undecodable(&error),
        };
        let unknown: Vec<_> = node
            .as_map()
            .into_iter()
            .flat_map(Map::iter)
            .filter(|entry| !TOP_LEVEL.contains(&&*entry.key))
            .map(|entry| {
                Finding::error(identity.clone(), entry.key_at, format!("unknown field {:?}", entry.key))
            })
            .collect();
        if !unknown.is_empty() {
            self.report.findings.extend(unknown);
            return;
        }
        let found = validate::validate(&object);
        let severities = [(Severity::Error, &found.errors), (Severity::Warning, &found.warnings)];
        for (severity, finding) in
            severities.into_iter().flat_map(|(s, list)| list.iter().map(move |f| (s, f)))
        {
            self.report.findings.push(Finding {
                severity,
                code: Some(finding.code.id),
                object: identity.clone(),
                at: locate(&node, &finding.path),
                path: finding.path.clone(),
                message: finding.message.clone().into_owned(),
                remedy: Some(finding.code.remedy.to_owned()).filter(|remedy| !remedy.is_empty()),
                in_istioctl: !finding.ours,
                istioctl_prefix: "",
            });
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

    fn undecodable(&mut self, error: &DecodeError) {
        let finding = |problem: &Problem| Finding {
            path: problem.path.clone(),
            remedy: problem.remedy.as_ref().map(ToString::to_string),
            istioctl_prefix: "cannot parse proto message: ",
            ..Finding::error(Identity::clone(&error.object), problem.at, problem.message.clone())
        };
        if error.problems().is_empty() {
            self.report.findings.push(Finding::error(
                Identity::clone(&error.object),
                error.at,
                error.to_string(),
            ));
        }
        self.report.findings.extend(error.problems().iter().map(finding));
    }

    /// Something that is no object of the mesh: another program's, or no object at all.
    fn other(&mut self, node: &Node) {
        let Err(error) = Object::decode(node, Options::lenient()) else { return };
        match &error.reason {
            Reason::UnknownKind => self.report.findings.push(Finding {
                severity: Severity::Note,
                in_istioctl: false,
                ..Finding::error(
                    Identity::clone(&error.object),
                    error.at,
                    "not a kind the mesh reads: skipped".to_owned(),
                )
            }),
            _ => self.undecodable(&error),
        }
    }
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
            in_istioctl: true,
            istioctl_prefix: "",
        }
    }
}
