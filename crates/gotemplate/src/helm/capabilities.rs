//! `.Capabilities`: what the cluster can do.

use std::borrow::Cow;

use crate::gofmt;
use crate::limits::Budget;
use crate::value::{Function, List, Object, ObjectData, Value};

/// The versions of Kubernetes, of its APIs and of Helm that a chart may ask for.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The version of Kubernetes.
    pub kube_version: KubeVersion,
    /// The API versions (`apps/v1`) and, where known, kinds (`apps/v1/Deployment`) that the cluster serves.
    pub api_versions: Vec<String>,
    /// The version of Helm.
    pub helm_version: HelmVersion,
}

/// A version of Kubernetes.
#[derive(Clone, Debug)]
pub struct KubeVersion {
    /// The whole version: `v1.33.4-gke.1245000`.
    pub version: String,
    /// The major number.
    pub major: String,
    /// The minor number.
    pub minor: String,
}

impl KubeVersion {
    /// Reads a version such as `v1.33.4`; what cannot be read leaves the numbers empty.
    pub fn new(version: &str) -> Self {
        let plain = version.trim_start_matches('v');
        let mut numbers = plain.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().unwrap_or_default().to_owned();
        Self { version: format!("v{plain}"), major: number(), minor: number() }
    }

    /// The version without a vendor's suffix.
    fn normalized(&self) -> String {
        let numbers: Vec<&str> = self.version.split(['-', '+']).take(1).collect();
        numbers.concat()
    }
}

/// A version of Helm.
#[derive(Clone, Debug)]
pub struct HelmVersion {
    /// `v4.0.0`.
    pub version: String,
    /// The Go version it was built with.
    pub go_version: String,
    /// The version of its Kubernetes client.
    pub kube_client_version: String,
}

impl Capabilities {
    /// What `helm template --kube-version` assumes.
    pub fn for_kubernetes(version: &str) -> Self {
        Self { kube_version: KubeVersion::new(version), ..Self::default() }
    }
}

/// What `helm template` assumes of a cluster it cannot ask.
impl Default for Capabilities {
    fn default() -> Self {
        Self {
            kube_version: KubeVersion::new("v1.37.0"),
            api_versions: API_VERSIONS.iter().map(|version| (*version).to_owned()).collect(),
            helm_version: HelmVersion {
                version: "v4.3".to_owned(),
                go_version: "go1.26.8".to_owned(),
                kube_client_version: "v1.37".to_owned(),
            },
        }
    }
}

/// The API versions of Kubernetes itself that Helm 4.3 knows.
const API_VERSIONS: [&str; 57] = [
    "v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "lifecycle.k8s.io/v1alpha1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1",
    "storagemigration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1",
];

impl Object for Capabilities {
    fn type_name(&self) -> Cow<'static, str> {
        "*common.Capabilities".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "KubeVersion" => Some(Value::object(self.kube_version.clone())),
            "APIVersions" => Some(Value::object(VersionSet(self.api_versions.clone()))),
            "HelmVersion" => Some(Value::object(self.helm_version.clone())),
            _ => None,
        }
    }

    fn print(&self) -> String {
        let parts = [
            self.kube_version.print(),
            VersionSet(self.api_versions.clone()).print(),
            self.helm_version.print(),
        ];
        format!("&{{{}}}", parts.join(" "))
    }

    fn encode(&self) -> Value {
        Value::map([
            ("KubeVersion", self.kube_version.encode()),
            ("APIVersions", Value::strings(self.api_versions.iter().map(String::as_str))),
            ("HelmVersion", self.helm_version.encode()),
        ])
    }
}

impl Object for KubeVersion {
    fn type_name(&self) -> Cow<'static, str> {
        "common.KubeVersion".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Version" => Some(self.version.as_str().into()),
            "Major" => Some(self.major.as_str().into()),
            "Minor" => Some(self.minor.as_str().into()),
            _ => None,
        }
    }

    fn method(&self, name: &str) -> Option<Function> {
        let (version, normalized) = (self.version.clone(), self.normalized());
        match name {
            "GitVersion" => Some(Function::new(move || version.clone())),
            "String" => Some(Function::new(move || normalized.clone())),
            _ => None,
        }
    }

    fn print(&self) -> String {
        self.normalized()
    }

    fn encode(&self) -> Value {
        Value::map([("Version", self.version.as_str()), ("Major", &self.major), ("Minor", &self.minor)])
    }
}

#[derive(Clone, Debug)]
struct VersionSet(Vec<String>);

impl VersionSet {
    fn list(&self) -> Value {
        Value::strings(self.0.iter().map(String::as_str))
    }
}

impl Object for VersionSet {
    fn type_name(&self) -> Cow<'static, str> {
        "common.VersionSet".into()
    }

    fn method(&self, name: &str) -> Option<Function> {
        let versions = self.0.clone();
        (name == "Has").then(|| Function::new(move |version: String| versions.contains(&version)))
    }

    fn data(&self) -> ObjectData {
        ObjectData::List(self.list().as_list().cloned().unwrap_or_else(|| List::new(Vec::new())))
    }

    fn print(&self) -> String {
        let text = gofmt::text(&Budget::default(), &self.list()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn encode(&self) -> Value {
        self.list()
    }
}

impl Object for HelmVersion {
    fn type_name(&self) -> Cow<'static, str> {
        "version.BuildInfo".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Version" => Some(self.version.as_str().into()),
            "GoVersion" => Some(self.go_version.as_str().into()),
            "KubeClientVersion" => Some(self.kube_client_version.as_str().into()),
            "GitCommit" | "GitTreeState" => Some("".into()),
            _ => None,
        }
    }

    fn print(&self) -> String {
        format!("{{{}   {} {}}}", self.version, self.go_version, self.kube_client_version)
    }

    fn encode(&self) -> Value {
        Value::map([
            ("version", self.version.as_str()),
            ("go_version", &self.go_version),
            ("kube_client_version", &self.kube_client_version),
        ])
    }
}
