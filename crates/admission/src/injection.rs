//! Sidecar injection: from a pod, its namespace and the injector's configuration to the pod that runs in the mesh.
//!
//! ```text
//!  pod ─► decision ─► templates rendered ─► merged over the pod ─► user's containers merged again ─► post-processing ─► patch
//!         (policy,    (gotemplate over      (strategic merge)      (overrides)                       (environment, metrics,
//!         selectors)   template_data)                                                                 probes, status, order)
//! ```
//!
//! [`Injector`] holds what is the same for all pods: parsed templates, values, mesh configuration. [`Injector::inject`] is a
//! pure function of that and a [`Subject`]; [`webhook`] answers admission reviews with it, [`workload`] rewrites
//! documents for `kube-inject`.
//!
//! Injecting a pod again gives the same pod: what was injected before is named in the status annotation and left out of what
//! templates see, and what the user had set of an injected container is kept in the overrides annotation.
//!
//! Pods stay JSON, so fields that this version of Kubernetes' types does not know survive.

mod annotation_rules;
mod config;
mod decision;
mod functions;
mod gateway;
mod image;
mod json_patch;
mod message_object;
mod openshift;
mod order;
mod overrides;
mod owner;
mod path_parameters;
mod pod;
mod probes;
mod prometheus;
mod render;
mod status;
mod struct_object;
#[cfg(test)]
mod tests;
mod values;
pub mod webhook;
pub mod workload;

use std::collections::BTreeMap;

use canopus_api::mesh_config::ProxyTarget;
use canopus_api::{builtin, mesh_config};
use canopus_base::labels::Labels;
use canopus_gotemplate::Value;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use serde_json::Value as Json;

pub use annotation_rules::{AnnotationError, check_annotation};
pub use config::{Config, ConfigError, Policy};
pub use functions::injection_functions;
pub use gateway::{GatewayInput, GatewayTemplateError};
pub use json_patch::{Operation, apply_patch, create_patch};
pub use message_object::MessageObject;
pub use owner::Owner;
pub use path_parameters::proxy_environment;
pub use values::Values;

/// What is the same for all pods that are injected.
#[derive(Debug)]
pub struct Injector {
    /// Templates and policy.
    pub config: Config,
    /// The values of the installation.
    pub values: Values,
    mesh: MeshConfig,
    mesh_object: Value,
    /// The settings of proxies that nothing but the mesh says something of.
    default_proxy: (ProxyConfig, Value),
    /// The revision that this injector belongs to.
    pub revision: String,
    /// `fips-140-2` and the like, or empty.
    pub compliance_policy: String,
}

impl Injector {
    /// An injector for a mesh.
    pub fn new(config: Config, values: Values, mesh: MeshConfig, revision: impl Into<String>) -> Self {
        let target = ProxyTarget { namespace: "", labels: &Labels::new(), annotation: None };
        let proxy = mesh_config::effective_proxy_config(&mesh, [], target);
        let proxy_object = Value::object(MessageObject::new(&proxy));
        Self {
            config,
            values,
            mesh_object: Value::object(MessageObject::new(&mesh)),
            default_proxy: (proxy, proxy_object),
            mesh,
            revision: revision.into(),
            compliance_policy: String::new(),
        }
    }

    /// The mesh configuration that pods are injected under.
    pub fn mesh(&self) -> &MeshConfig {
        &self.mesh
    }

    /// The settings of a subject's proxy, and as templates see them.
    fn proxy_config<'a>(&'a self, subject: &'a Subject<'_>) -> (&'a ProxyConfig, Value) {
        match &subject.proxy_config {
            Some(config) => (config, Value::object(MessageObject::new(config))),
            None => (&self.default_proxy.0, self.default_proxy.1.clone()),
        }
    }

    fn status_port(&self) -> i32 {
        self.mesh.default_config.as_ref().map_or(0, |config| config.status_port)
    }
}

/// A pod to inject, with what is known about its surroundings.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The pod, as the API server or a user wrote it.
    pub pod: &'a Json,
    /// The workload that owns it.
    pub owner: Owner,
    /// The settings of its proxy; none if nothing but the mesh says something of them.
    pub proxy_config: Option<ProxyConfig>,
    /// Annotations of its namespace, where the platform gives user IDs there.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// Whether proxies run as init containers that restart.
    pub native_sidecars: bool,
    /// Environment of the proxy, from the path of the webhook.
    pub environment: BTreeMap<String, String>,
}

/// Why a pod cannot be injected.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InjectionError {
    /// The pod is no pod.
    #[error("{0}")]
    Pod(#[from] builtin::TypeError),
    /// Annotations have values that cannot be used.
    #[error("failed to run injection template: {0}")]
    Annotations(#[from] AnnotationError),
    /// An annotation that an earlier injection wrote was damaged.
    #[error("failed to run injection template: annotation {annotation}: {reason}; remove the annotation")]
    Overrides {
        /// The annotation.
        annotation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The pod asks for a template that the configuration does not have.
    #[error("failed to run injection template: requested template {name:?} not found; have {known}")]
    UnknownTemplate {
        /// The template.
        name: String,
        /// Names of the templates that exist.
        known: String,
    },
    /// A template failed.
    #[error("failed to run injection template: {0}")]
    Template(String),
    /// A template did not give part of a pod.
    #[error("failed to run injection template: failed applying injection overlay: {0}")]
    Overlay(String),
    /// A container of the user's cannot be merged.
    #[error("failed to re apply container: failed to apply sidecar container: {0}")]
    Container(String),
    /// Metrics cannot be scraped where an annotation says.
    #[error("failed to process pod: {0}")]
    Process(String),
}

impl Injector {
    /// Injects a pod, whatever the policy says about it, and gives the pod as it should be.
    pub fn inject(&self, subject: Subject<'_>) -> Result<Json, InjectionError> {
        let mut original = subject.pod.clone();
        builtin::pod().normalize(&mut original)?;
        let injected = self.inject_normalized(&original, subject)?;
        Ok(injected)
    }

    /// Injects a pod and gives the operations that make the injected one of it.
    ///
    /// The subject's pod may be completed by what the API server knows of it; `raw` is the pod that the patch is for. What
    /// the injection leaves alone keeps the form it has there, so the patch applies to pods that are not written as Go would
    /// write them.
    pub fn patch(&self, raw: &Json, subject: Subject<'_>) -> Result<Vec<Operation>, InjectionError> {
        let mut original = subject.pod.clone();
        builtin::pod().normalize(&mut original)?;
        let injected = self.inject_normalized(&original, subject)?;
        let target = json_patch::graft(raw, &original, injected);
        Ok(create_patch(raw, &target))
    }

    fn inject_normalized(&self, original: &Json, mut subject: Subject<'_>) -> Result<Json, InjectionError> {
        annotation_rules::check(original)?;
        self.add_topology(original, &mut subject.environment);
        let rendered = render::render(self, original, &subject)?;
        let (mut merged, template) = (rendered.merged, rendered.template);
        overrides::reapply(&mut merged, original, &template, self.proxy_config(&subject).0)?;
        self.post_process(&mut merged, original, &template, &subject)?;
        builtin::pod().normalize(&mut merged)?;
        Ok(merged)
    }

    /// Adds the proxy's cluster and network: from the pod's label, else the path, else the values.
    fn add_topology(&self, pod: &Json, environment: &mut BTreeMap<String, String>) {
        const CLUSTER: &str = "ISTIO_META_CLUSTER_ID";
        const NETWORK: &str = "ISTIO_META_NETWORK";
        if environment.get(CLUSTER).is_none_or(String::is_empty) && !self.values.cluster_name.is_empty() {
            environment.insert(CLUSTER.to_owned(), self.values.cluster_name.clone());
        }
        let mut network = environment.get(NETWORK).filter(|network| !network.is_empty()).cloned();
        if network.is_none() && !self.values.network.is_empty() {
            network = Some(self.values.network.clone());
        }
        if let Some(label) = pod::label(pod, "topology.istio.io/network") {
            network = Some(label.to_owned());
        }
        if let Some(network) = network.filter(|network| !network.is_empty()) {
            environment.insert(NETWORK.to_owned(), network);
        }
    }

    fn post_process(
        &self,
        merged: &mut Json,
        original: &Json,
        template: &Json,
        subject: &Subject<'_>,
    ) -> Result<(), InjectionError> {
        pod::set_environment(merged, &subject.environment);
        prometheus::merge(merged, &self.mesh, self.status_port()).map_err(InjectionError::Process)?;
        prometheus::announce_secure_port(merged);
        if probes::are_rewritten(merged, self.values.rewrite_probes) {
            probes::rewrite(merged, self.status_port());
        }
        status::write(merged, template, self, subject);
        order::sort_containers(merged, original, self)
    }
}
