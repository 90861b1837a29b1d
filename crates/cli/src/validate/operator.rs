//! IstioOperator: what an installation is to be like. Its shape is checked; what charts make of `values` is theirs to say.

use std::collections::BTreeMap;

use canopus_api::decode::Identity;
use canopus_api::mesh_config;
use canopus_api::validate::{self, Report};
use canopus_base::tree::{DecodeError, Node};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::check::{Finding, Severity, Wording, unknown_keys};

const API_VERSION: &str = "install.istio.io/v1alpha1";
const KIND: &str = "IstioOperator";

/// The longest name of an object.
const MAX_NAME: usize = 254;

pub(super) fn is_operator(identity: &Identity) -> bool {
    &*identity.api_version == API_VERSION && &*identity.kind == KIND
}

/// What is wrong with an IstioOperator.
pub(super) fn check(node: &Node, identity: &Identity) -> Vec<Finding> {
    let unknown = unknown_keys(node, identity);
    if !unknown.is_empty() {
        return unknown;
    }
    let Some(spec) = node.get("spec").filter(|spec| !spec.is_null()) else { return Vec::new() };
    let shape = match spec.decode::<Spec<'_>>() {
        Ok(shape) => shape,
        Err(error) => return vec![misshapen(identity, error)],
    };
    let mut found = Vec::new();
    let mut wrong = |path: &str, message: String, remedy: &str| {
        let at = validate::locate(node, path);
        let remedy = Some(remedy.to_owned());
        found.push(Finding {
            path: path.to_owned(),
            remedy,
            ..Finding::error(identity.clone(), at, message)
        });
    };
    if let Some(revision) = shape.revision.filter(|revision| !is_label(revision)) {
        let message = format!("invalid revision specified: {revision}");
        wrong("spec.revision", message, "use at most 63 lower-case letters, digits and dashes");
    }
    for (path, name) in shape.components.iter().flat_map(Components::gateway_names) {
        if !is_object_name(name) {
            let message =
                format!("invalid value {}.name: {name}", path.trim_start_matches("spec.components."));
            wrong(&path, message, "use lower-case letters, digits, dots and dashes");
        }
    }
    found.extend(spec.get("meshConfig").into_iter().flat_map(|mesh| check_mesh(mesh, identity)));
    found
}

fn misshapen(identity: &Identity, error: DecodeError) -> Finding {
    let path = if error.path.is_empty() { "spec".to_owned() } else { format!("spec.{}", error.path) };
    let unknown = error.message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let theirs = unknown.map_or_else(|| error.message.clone(), |field| format!("unknown field {field:?}"));
    let istioctl = Wording::Own(format!("could not unmarshal: json: {theirs}"));
    Finding { path, istioctl, ..Finding::error(identity.clone(), error.at, error.message) }
}

/// The configuration of the mesh, laid over the defaults.
fn check_mesh(node: &Node, identity: &Identity) -> Vec<Finding> {
    let finding = |severity, path: &str, message: String| Finding {
        severity,
        path: format!("spec.meshConfig.{path}"),
        ..Finding::error(identity.clone(), validate::locate(node, path), message)
    };
    match mesh_config::apply_node(node, &mesh_config::default_mesh_config()) {
        Ok(config) => {
            let Report { errors, warnings, .. } =
                validate::fragment(|scope| validate::mesh_config::check(&config.value, scope));
            let errors = errors.iter().map(|f| (Severity::Error, f));
            let all = errors.chain(warnings.iter().map(|f| (Severity::Warning, f)));
            all.map(|(severity, f)| finding(severity, &f.path, f.message.clone().into_owned())).collect()
        }
        Err(error) => vec![finding(Severity::Error, "", error.to_string())],
    }
}

/// Whether a text can be a label of a DNS name.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.is_empty()
        || text.len() <= 63 && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_object_name(text: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    text.len() <= MAX_NAME && text.bytes().all(is_part)
}

/// The fields there are. Of most, only their place matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "fields that are only allowed to be there")]
struct Spec<'a> {
    profile: Option<&'a str>,
    install_package_path: Option<&'a str>,
    hub: Option<&'a str>,
    tag: Option<IgnoredAny>,
    namespace: Option<&'a str>,
    revision: Option<&'a str>,
    compatibility_version: Option<&'a str>,
    mesh_config: Option<IgnoredAny>,
    #[serde(borrow)]
    components: Option<Components<'a>>,
    values: Option<IgnoredAny>,
    unvalidated_values: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "fields that are only allowed to be there")]
struct Components<'a> {
    base: Option<Component<'a>>,
    pilot: Option<Component<'a>>,
    cni: Option<Component<'a>>,
    ztunnel: Option<Component<'a>>,
    istiod_remote: Option<Component<'a>>,
    #[serde(borrow)]
    ingress_gateways: Option<Vec<Component<'a>>>,
    egress_gateways: Option<Vec<Component<'a>>>,
}

impl<'a> Components<'a> {
    /// The names of gateways, with their paths.
    fn gateway_names(&self) -> impl Iterator<Item = (String, &'a str)> {
        let all = [("ingressGateways", &self.ingress_gateways), ("egressGateways", &self.egress_gateways)];
        all.into_iter().flat_map(|(field, gateways)| {
            let gateways = gateways.iter().flatten().enumerate();
            gateways.filter_map(move |(at, gateway)| {
                Some((format!("spec.components.{field}[{at}].name"), gateway.name?))
            })
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "fields that are only allowed to be there")]
struct Component<'a> {
    enabled: Option<bool>,
    namespace: Option<&'a str>,
    hub: Option<&'a str>,
    tag: Option<IgnoredAny>,
    k8s: Option<IgnoredAny>,
    name: Option<&'a str>,
    label: Option<BTreeMap<&'a str, &'a str>>,
}
