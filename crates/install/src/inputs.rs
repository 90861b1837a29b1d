//! Merges the inputs into one IstioOperator: profile, files, flags, each over the one before.

use canopus_base::tree::Limits;
use canopus_base::yaml;
use serde_json::{Value as Json, json};

use crate::Error;
use crate::operator::Operator;
use crate::package::Package;
use crate::tree::{self, Tree};

/// What a user wrote.
#[derive(Clone, Debug)]
pub struct Input {
    /// The file's name, for errors.
    pub file: String,
    /// Content of the file.
    pub text: String,
}

/// Merges the inputs over the profile that they name.
pub fn merge_inputs(package: &Package, files: &[Input], flags: &[String]) -> Result<Operator, Error> {
    let mut user = Tree::new();
    for (key, value) in [
        ("apiVersion", json!("install.istio.io/v1alpha1")),
        ("kind", json!("IstioOperator")),
        ("metadata", json!({})),
        ("spec", json!({})),
    ] {
        user.insert(key.to_owned(), value);
    }
    for input in files {
        tree::merge(&mut user, read(input)?);
    }
    for flag in flags {
        set_flag(&mut user, flag)?;
    }
    let mut base = package.profile(tree::get_text(&user, "spec.profile"))?;
    let user_values = tree::get(&user, "spec.values").filter(|values| values.is_object()).cloned();
    tree::merge(&mut base, user);
    translate(&mut base)?;
    // What the user says of values counts more than what was just translated.
    if let Some(values) = user_values {
        tree::merge(&mut base, tree::nested(values, &["spec", "values"]));
    }
    Ok(Operator { tree: base })
}

/// Like [`merge_inputs`]; the default revision also becomes the one that checks objects which name no revision.
pub fn merge_for_install(package: &Package, files: &[Input], flags: &[String]) -> Result<Operator, Error> {
    let operator = merge_inputs(package, files, flags)?;
    let values = operator.values();
    let text = |name: &str| values[name].as_str().unwrap_or_default();
    if !text("defaultRevision").is_empty() || !matches!(text("revision"), "" | "default") {
        return Ok(operator);
    }
    let mut flags = flags.to_vec();
    flags.push("values.defaultRevision=default".to_owned());
    merge_inputs(package, files, &flags)
}

fn set_flag(tree: &mut Tree, flag: &str) -> Result<(), Error> {
    tree::set_flag(tree, flag).map_err(|reason| Error::Set { flag: flag.to_owned(), reason })
}

/// Reads a file that holds one IstioOperator.
fn read(input: &Input) -> Result<Tree, Error> {
    let mut documents = yaml::parse_all(&input.text, &Limits::default()).into_iter();
    let refused = |reason: String| Error::Input { file: input.file.clone(), reason };
    let Some(first) = documents.next() else { return Ok(Tree::new()) };
    let first = first.map_err(|error| Error::Syntax { file: input.file.clone(), error })?;
    if documents.next().is_some() {
        return Err(refused(
            "contains multiple IstioOperator CRs, only one per file is supported".to_owned(),
        ));
    }
    match first.node.to_json() {
        Json::Object(mut tree) => {
            if tree.get("spec").is_some_and(Json::is_null) {
                tree.remove("spec");
            }
            Ok(tree)
        }
        other => Err(refused(format!("expected an IstioOperator, found a {}", tree::kind(&other)))),
    }
}

/// Settings of the operator that charts know as values.
const TRANSLATED: [(&str, &str); 5] = [
    ("spec.hub", "global.hub"),
    ("spec.tag", "global.tag"),
    ("spec.revision", "revision"),
    ("spec.meshConfig", "meshConfig"),
    ("spec.compatibilityVersion", "compatibilityVersion"),
];

fn translate(base: &mut Tree) -> Result<(), Error> {
    for (from, to) in TRANSLATED {
        match tree::get(base, from).cloned() {
            None => {}
            Some(map @ Json::Object(_)) => {
                tree::merge(base, tree::nested(map, &["spec", "values", "meshConfig"]));
            }
            Some(Json::String(text)) => set_flag(base, &format!("values.{to}={text}"))?,
            Some(other) => set_flag(base, &format!("values.{to}={other}"))?,
        }
    }
    // Charts depend on whether other components are there.
    for (component, value) in [("pilot", "pilot.enabled"), ("cni", "pilot.cni.enabled")] {
        let enabled = tree::is_true(base, &format!("spec.components.{component}.enabled"));
        set(base, &format!("spec.values.{value}"), Json::Bool(enabled))?;
    }
    let namespace = tree::get_text(base, "spec.values.global.istioNamespace").to_owned();
    if !namespace.is_empty() {
        set(base, "metadata.namespace", Json::String(namespace))?;
    }
    Ok(())
}

fn set(base: &mut Tree, path: &str, value: Json) -> Result<(), Error> {
    tree::set(base, path, value).map_err(|reason| Error::Set { flag: path.to_owned(), reason })
}
