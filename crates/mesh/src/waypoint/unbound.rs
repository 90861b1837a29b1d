//! Why an object is not bound to a waypoint that it names, in Istio's words.

/// Why an object is not bound to a waypoint. Names are `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unbound {
    /// The waypoint does not exist, or has no address yet.
    NotReady(String),
    /// The waypoint's listeners do not allow objects of the namespace.
    Denied(String),
    /// The waypoint handles no traffic of this type.
    UnsupportedTraffic(String, &'static str),
    /// The waypoint is in another namespace than a ServiceEntry that only its own namespace may see.
    CrossNamespace(String),
    /// The canary is the primary waypoint.
    CanaryIsPrimary(String),
    /// The share of the canary is no percentage.
    CanaryWeight(String),
}

impl Unbound {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotReady(_) => "WaypointIsNotReady",
            Self::Denied(_) => "AttachmentDenied",
            Self::UnsupportedTraffic(..) => "UnsupportedTrafficType",
            Self::CrossNamespace(_) => "CrossNamespaceWaypointForbidden",
            Self::CanaryIsPrimary(_) => "CanarySameAsPrimary",
            Self::CanaryWeight(_) => "CanaryInvalidWeight",
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::NotReady(waypoint) => format!("waypoint {waypoint:?} is not ready"),
            Self::Denied(waypoint) => {
                format!("we are not permitted to attach to waypoint {waypoint:?} (missing allowedRoutes?)")
            }
            Self::UnsupportedTraffic(waypoint, traffic) => format!(
                "attempting to bind to traffic type {traffic:?} which the waypoint {waypoint:?} does not support"
            ),
            Self::CrossNamespace(waypoint) => format!(
                "cannot bind to waypoint {waypoint:?} in another namespace: cross-namespace waypoint binding is not \
                 permitted for a ServiceEntry with NAMESPACE visibility"
            ),
            Self::CanaryIsPrimary(waypoint) => {
                format!("canary waypoint {waypoint:?} must differ from the primary waypoint")
            }
            Self::CanaryWeight(waypoint) => {
                format!("canary waypoint {waypoint:?} has an invalid weight; must be an integer in [0,100]")
            }
        }
    }
}
