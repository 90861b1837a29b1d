use canopus_xds::types::{CLUSTER, ENDPOINT, LISTENER, ROUTE};
use serde::Serialize;

/// A type of resources that sidecars ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// Clusters.
    Cds,
    /// Endpoints.
    Eds,
    /// Listeners.
    Lds,
    /// Routes.
    Rds,
}

impl Kind {
    /// All of them, in the order they are asked for.
    pub const ALL: [Self; 4] = [Self::Cds, Self::Eds, Self::Lds, Self::Rds];

    /// The kind of a type URL.
    pub fn from_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// Type URL of the kind.
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cds => CLUSTER,
            Self::Eds => ENDPOINT,
            Self::Lds => LISTENER,
            Self::Rds => ROUTE,
        }
    }

    /// What it is called in short.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cds => "CDS",
            Self::Eds => "EDS",
            Self::Lds => "LDS",
            Self::Rds => "RDS",
        }
    }

    /// Whether proxies ask for all there is.
    pub fn is_wildcard(self) -> bool {
        matches!(self, Self::Cds | Self::Lds)
    }

    /// The kind that resources of this one refer to.
    pub fn child(self) -> Option<Self> {
        match self {
            Self::Cds => Some(Self::Eds),
            Self::Lds => Some(Self::Rds),
            Self::Eds | Self::Rds => None,
        }
    }
}
