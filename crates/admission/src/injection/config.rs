//! The injector's configuration: key `config` of the ConfigMap `istio-sidecar-injector`.

use std::collections::BTreeMap;

use canopus_base::labels::selector::{Selector, SelectorError};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_gotemplate::{Functions, Limits as TemplateLimits, ParseError, Templates};

use super::functions;

/// Templates, and which pods they are for.
#[derive(Clone, Debug)]
pub struct Config {
    /// What happens to pods that nothing else decides about.
    pub policy: Policy,
    /// The templates of pods that ask for none.
    pub default_templates: Vec<String>,
    /// Names that stand for several templates.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Pods that are never injected, unless they ask for it.
    pub never_inject: Vec<Selector>,
    /// Pods that are always injected, unless they refuse.
    pub always_inject: Vec<Selector>,
    /// Annotations that every injected pod gets.
    pub injected_annotations: BTreeMap<String, String>,
    /// What is wrong but does not keep the rest from working.
    pub warnings: Vec<String>,
    /// The texts of the templates.
    pub raw_templates: BTreeMap<String, String>,
    pub(super) templates: BTreeMap<String, Templates>,
    /// Whether a template may change the values it is given, so that each rendering needs a copy.
    pub(super) changes_values: bool,
}

/// What happens to pods that nothing else decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Pods are injected.
    Enabled,
    /// Pods are not injected.
    Disabled,
    /// A value that means nothing; no pod is injected under it, not even one that asks for it.
    Unknown(String),
}

/// Why a configuration cannot be used. The one before it stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not YAML.
    #[error("failed to unmarshal injection template: {0}")]
    Syntax(#[from] yaml::Error),
    /// A field has a value of another type.
    #[error("failed to unmarshal injection template: {field}: expected {expected}, found a {found}")]
    Type {
        /// The field.
        field: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A template is not well formed.
    #[error("template {name:?}: {error}")]
    Template {
        /// The template.
        name: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// A selector selects nothing that can be.
    #[error("{field}: {error}")]
    Selector {
        /// The field.
        field: String,
        /// What is wrong with it.
        error: SelectorError,
    },
    /// The values cannot be read.
    #[error("could not parse configuration values: {0}")]
    Values(String),
}

/// The template of pods that ask for none, where the configuration names none.
const SIDECAR: &str = "sidecar";

/// Bounds of one rendering: hundreds of times what Istio's own templates need, and over in well under a second.
const LIMITS: TemplateLimits = TemplateLimits { steps: 1_000_000, bytes: 16 << 20, depth: 400 };

/// Functions of sprig's that change a map in place.
const CHANGING: [&str; 7] =
    ["set ", "unset ", "merge ", "mergeOverwrite ", "mustMerge ", "mustMergeOverwrite ", "(set"];

impl Config {
    /// Reads a configuration and parses its templates.
    pub fn read(text: &str, variables: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let document = yaml::parse_one(text, &Limits::default())?;
        if document.as_map().is_none() && !document.is_null() {
            return Err(ConfigError::Type {
                field: "config".to_owned(),
                expected: "a map",
                found: document.kind_name(),
            });
        }
        let field = |name: &str| document.get(name).filter(|node| !node.is_null());
        let policy = match field("policy").map(|node| text_of("policy", node)).transpose()?.as_deref() {
            Some("enabled") => Policy::Enabled,
            Some("disabled") => Policy::Disabled,
            other => Policy::Unknown(other.unwrap_or_default().to_owned()),
        };
        let mut default_templates = strings("defaultTemplates", field("defaultTemplates"))?;
        if default_templates.is_empty() {
            default_templates.push(SIDECAR.to_owned());
        }
        let mut aliases = BTreeMap::new();
        if let Some(map) = field("aliases") {
            let map = map.as_map().ok_or_else(|| mismatch("aliases", "a map", map))?;
            for entry in map {
                let names = strings(&format!("aliases.{}", entry.key), Some(&entry.node))?;
                aliases.insert(entry.key.to_string(), names);
            }
        }
        let raw_templates = string_map("templates", field("templates"))?;
        let mut warnings = Vec::new();
        let never_inject = selectors("neverInjectSelector", field("neverInjectSelector"), &mut warnings)?;
        let always_inject = selectors("alwaysInjectSelector", field("alwaysInjectSelector"), &mut warnings)?;
        if let Policy::Unknown(policy) = &policy {
            warnings
                .push(format!("policy: {policy:?} is neither enabled nor disabled, so no pod is injected"));
        }
        let config = Self {
            policy,
            default_templates,
            aliases,
            never_inject,
            always_inject,
            injected_annotations: string_map("injectedAnnotations", field("injectedAnnotations"))?,
            warnings,
            raw_templates: BTreeMap::new(),
            templates: BTreeMap::new(),
            changes_values: false,
        };
        config.with_templates(raw_templates, variables)
    }

    /// A configuration that injects every pod with these templates, as `kube-inject` does.
    pub fn from_templates(
        raw_templates: BTreeMap<String, String>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let config = Self {
            policy: Policy::Enabled,
            default_templates: vec![SIDECAR.to_owned()],
            aliases: BTreeMap::new(),
            never_inject: Vec::new(),
            always_inject: Vec::new(),
            injected_annotations: BTreeMap::new(),
            warnings: Vec::new(),
            raw_templates: BTreeMap::new(),
            templates: BTreeMap::new(),
            changes_values: false,
        };
        config.with_templates(raw_templates, variables)
    }

    /// Reads what `--injectConfigFile` names: a configuration, or the sidecar's template alone.
    pub fn read_file(text: &str, variables: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let has_templates = yaml::parse_one(text, &Limits::default()).is_ok_and(|document| {
            string_map("templates", document.get("templates")).is_ok_and(|map| !map.is_empty())
        });
        if !has_templates {
            let template = [(SIDECAR.to_owned(), text.to_owned())];
            return Self::from_templates(template.into_iter().collect(), variables);
        }
        Self::from_templates(Self::read(text, variables)?.raw_templates, variables)
    }

    fn with_templates(
        mut self,
        raw_templates: BTreeMap<String, String>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let functions = functions::injection_functions(variables);
        for (name, text) in &raw_templates {
            let parsed = parse(text, functions.clone())
                .map_err(|error| ConfigError::Template { name: name.clone(), error })?;
            self.templates.insert(name.clone(), parsed);
        }
        self.changes_values =
            raw_templates.values().any(|text| CHANGING.iter().any(|function| text.contains(function)));
        self.raw_templates = raw_templates;
        Ok(self)
    }
}

fn parse(text: &str, functions: Functions) -> Result<Templates, ParseError> {
    let mut templates = Templates::new("inject", functions).with_limits(LIMITS);
    templates.parse("inject", text)?;
    Ok(templates)
}

fn mismatch(field: &str, expected: &'static str, found: &Node) -> ConfigError {
    ConfigError::Type { field: field.to_owned(), expected, found: found.kind_name() }
}

fn text_of(field: &str, node: &Node) -> Result<String, ConfigError> {
    node.as_str().map(str::to_owned).ok_or_else(|| mismatch(field, "a string", node))
}

fn strings(field: &str, node: Option<&Node>) -> Result<Vec<String>, ConfigError> {
    let Some(node) = node.filter(|node| !node.is_null()) else { return Ok(Vec::new()) };
    let items = node.as_list().ok_or_else(|| mismatch(field, "a list", node))?;
    items.iter().enumerate().map(|(at, item)| text_of(&format!("{field}[{at}]"), item)).collect()
}

fn string_map(field: &str, node: Option<&Node>) -> Result<BTreeMap<String, String>, ConfigError> {
    let Some(node) = node.filter(|node| !node.is_null()) else { return Ok(BTreeMap::new()) };
    let map = node.as_map().ok_or_else(|| mismatch(field, "a map", node))?;
    let entry = |entry: &canopus_base::tree::Entry| {
        Ok((entry.key.to_string(), text_of(&format!("{field}.{}", entry.key), &entry.node)?))
    };
    map.iter().map(entry).collect()
}

/// Reads selectors. Parity: one that cannot be read selects nothing and is reported.
fn selectors(
    field: &str,
    node: Option<&Node>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Selector>, ConfigError> {
    let Some(node) = node.filter(|node| !node.is_null()) else { return Ok(Vec::new()) };
    let items = node.as_list().ok_or_else(|| mismatch(field, "a list", node))?;
    let mut read = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match selector(&format!("{field}[{at}]"), item) {
            Ok(selector) => read.push(selector),
            Err(error) => warnings.push(error.to_string()),
        }
    }
    Ok(read)
}

/// Reads a label selector as Kubernetes writes it.
pub(crate) fn selector(field: &str, node: &Node) -> Result<Selector, ConfigError> {
    let labels = string_map(&format!("{field}.matchLabels"), node.get("matchLabels"))?;
    let expressions = node.get("matchExpressions").filter(|node| !node.is_null());
    let expressions = match expressions {
        None => &[],
        Some(node) => {
            node.as_list().ok_or_else(|| mismatch(&format!("{field}.matchExpressions"), "a list", node))?
        }
    };
    let mut parts = Vec::new();
    for (at, expression) in expressions.iter().enumerate() {
        let field = format!("{field}.matchExpressions[{at}]");
        let text = |name: &str| match expression.get(name) {
            Some(node) => text_of(&format!("{field}.{name}"), node),
            None => Ok(String::new()),
        };
        parts.push((
            text("key")?,
            text("operator")?,
            strings(&format!("{field}.values"), expression.get("values"))?,
        ));
    }
    let expressions = parts.iter().map(|(key, operator, values)| {
        (key.as_str(), operator.as_str(), values.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Selector::from_parts(labels, expressions)
        .map_err(|error| ConfigError::Selector { field: field.to_owned(), error })
}
