//! Whether a pod is injected, and what its template makes of it.

use std::collections::BTreeMap;

use anyhow::Context;
use canopus_admission::injection::{
    Config, Injector, Owner, Subject, Values, check_annotation, injection_functions,
};
use canopus_api::mesh_config;
use canopus_base::labels::selector::Selector;
use canopus_base::quantity::Quantity;
use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_gotemplate::{Templates, Value};
use serde_json::{Value as Json, json};

use super::Check;
use super::row::{Row, equal, equal_tree};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestInjectRequired" => is_required,
        "TestOmitNil" => omit_nil,
        "TestOtelResourceAttributes" => resource_attributes,
        "TestValidateResourceQuantity" => quantity,
        "TestValidateAnnotations" => annotations,
        _ => return None,
    })
}

fn json(row: Row<'_>, column: &str) -> Json {
    row.get(column).map(Node::to_json).unwrap_or_default()
}

fn is_required(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut written = json(row, "config");
    let mut texts = |key: &str| -> anyhow::Result<Vec<Selector>> {
        // A selector that is a text is written as for `kubectl --selector`.
        let Some(listed) = written[key].as_array_mut() else { return Ok(Vec::new()) };
        let texts: Vec<String> = listed.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect();
        listed.retain(|one| !one.is_string());
        Ok(texts.iter().map(|text| Selector::parse(text)).collect::<Result<_, _>>()?)
    };
    let (never, always) = (texts("neverInjectSelector")?, texts("alwaysInjectSelector")?);
    let mut config = Config::read(&yaml::node_to_string(&Node::from(written)), &BTreeMap::new())?;
    config.never_inject.extend(never);
    config.always_inject.extend(always);
    let pod = json!({"metadata": json(row, "meta"), "spec": json(row, "podSpec")});
    Ok(equal("want", &row.truth("want")?, &config.is_required(&pod)))
}

fn omit_nil(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut templates = Templates::new("table", injection_functions(&BTreeMap::new()));
    templates.parse("table", "{{ omitNil .in | mustToJson }}")?;
    let rendered = templates.render("table", &Value::map([("in", Value::from(json(row, "in")))]))?;
    let got: Json = serde_json::from_slice(&rendered)?;
    Ok(equal_tree(&Node::from(json(row, "want")), &Node::from(got)))
}

/// The name of the annotation that the template of the table writes.
const RESULT: &str = "result";

/// A pod is injected by a template that prints the attributes.
fn resource_attributes(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mesh = row.get("mc").context("no mesh configuration")?;
    let mesh = mesh_config::apply_node(mesh, &mesh_config::default_mesh_config())?.value;
    let template = format!(
        "metadata:\n  annotations:\n    {RESULT}: {{{{ otelResourceAttributes .MeshConfig .ObjectMeta.Annotations \
         .ObjectMeta.Labels .ObjectMeta.Namespace .Spec.Containers | quote }}}}\n"
    );
    let templates = BTreeMap::from([("sidecar".to_owned(), template)]);
    let config = Config::from_templates(templates, &BTreeMap::new())?;
    let injector = Injector::new(config, Values::read("{}")?, mesh, "");
    let pod = json!({
        "metadata": {
            "namespace": json(row, "namespace"),
            "annotations": json(row, "annotations"),
            "labels": json(row, "labels"),
        },
        "spec": {"containers": row.get("containers").map_or_else(|| json!([]), Node::to_json)},
    });
    let injected = injector.inject(Subject {
        pod: &pod,
        owner: Owner::default(),
        proxy_config: None,
        namespace_annotations: None,
        native_sidecars: false,
        environment: BTreeMap::new(),
    })?;
    let got = injected["metadata"]["annotations"][RESULT].as_str().unwrap_or_default();
    Ok(equal("want", &row.text("want")?, &got))
}

fn quantity(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = row.text("value")?.parse::<Quantity>().is_err();
    Ok(equal("wantErr", &row.truth("wantErr")?, &got))
}

fn annotations(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let given = row.get("annotations").and_then(Node::as_map).into_iter().flatten();
    let fails = given.into_iter().any(|entry| {
        let value = entry.node.as_str().unwrap_or_default();
        check_annotation(&entry.key, value).is_err()
    });
    Ok(equal("wantErr", &row.truth("wantErr")?, &fails))
}
