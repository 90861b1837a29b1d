//! What is known about each kind besides its fields: names, versions, scope, columns.

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In the cluster.
    Cluster,
}

/// The project whose API a kind belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Istio's own kinds.
    Istio,
    /// Kinds every Kubernetes cluster has.
    Kubernetes,
    /// Kubernetes Gateway API.
    GatewayApi,
    /// Multi-cluster services.
    MultiCluster,
    /// Gateway API Inference Extension.
    Inference,
}

impl Category {
    /// The category's name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Istio => "Istio",
            Self::Kubernetes => "Kubernetes",
            Self::GatewayApi => "Gateway API",
            Self::MultiCluster => "Multi-cluster services",
            Self::Inference => "Gateway API Inference Extension",
        }
    }
}

/// A column of a printed table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// Which value stands there, as a path from the object: `.spec.hosts`.
    pub path: &'static str,
}

/// One row of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The kind's name: `VirtualService`. Two kinds may share it in different groups.
    pub kind: &'static str,
    /// The API group: `networking.istio.io`. Empty for Kubernetes' core group.
    pub group: &'static str,
    /// The versions in which it is served, the one to use first.
    pub versions: &'static [&'static str],
    /// The name in URLs: `virtualservices`.
    pub plural: &'static str,
    /// What people type: `vs`.
    pub short_names: &'static [&'static str],
    /// Where its objects live.
    pub scope: Scope,
    /// The project whose API the kind belongs to.
    pub category: Category,
    /// The lowest bundle version (major, minor) of its CRD that is watched, where there is one.
    pub min_bundle: Option<(u32, u32)>,
    /// The columns between name and age.
    pub columns: &'static [Column],
}

impl Info {
    /// A namespaced kind of which only names are left to say.
    pub(crate) const BASE: Self = Self {
        kind: "",
        group: "",
        versions: &["v1"],
        plural: "",
        short_names: &[],
        scope: Scope::Namespaced,
        category: Category::Kubernetes,
        min_bundle: None,
        columns: &[],
    };

    /// The version to write and to watch.
    pub const fn version(&self) -> &'static str {
        self.versions[0]
    }

    /// Group and version as objects write them: `networking.istio.io/v1`, `v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }

    /// Whether objects live in a namespace.
    pub const fn is_namespaced(&self) -> bool {
        matches!(self.scope, Scope::Namespaced)
    }

    /// The name of the CRD, and of the kind where two share a short one: `virtualservices.networking.istio.io`.
    pub fn resource(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Whether a CRD of this bundle version (`v1.6.0`) is new enough to be watched.
    pub fn accepts_bundle(&self, bundle_version: Option<&str>) -> bool {
        let Some(minimum) = self.min_bundle else { return true };
        // Parity: where a minimum is asked for, a CRD that does not say its version is not watched.
        let Some(version) = bundle_version else { return false };
        let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= minimum,
            _ => false,
        }
    }
}
