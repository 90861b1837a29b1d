//! What routes have in common, and the routes of connections: TCP, TLS, UDP.

use crate::decode::complete;
use crate::gateway_api::reference::{BackendObjectReference, BackendRef, ParentReference};
use crate::gateway_api::status::RouteStatus;
use crate::macros::{object, open_enum};
use crate::resource::Resource;

/// Routes of TCP connections.
pub type TcpRoute = Resource<TcpRouteSpec, RouteStatus>;
/// Routes of TLS connections, by the host that clients ask for.
pub type TlsRoute = Resource<TlsRouteSpec, RouteStatus>;
/// Routes of UDP packets.
pub type UdpRoute = Resource<UdpRouteSpec, RouteStatus>;

open_enum! {
    /// How a text is compared.
    MatchType {
        /// The value matches exactly.
        Exact = "Exact",
        /// The value matches a regular expression.
        RegularExpression = "RegularExpression",
    }
}

open_enum! {
    /// By what a client is known again.
    PersistenceType {
        /// A cookie.
        Cookie = "Cookie",
        /// A header.
        Header = "Header",
    }
}

open_enum! {
    /// How long a cookie lives.
    CookieLifetime {
        /// The cookie lasts as long as the browser's session.
        Session = "Session",
        /// The cookie lasts until the timeout.
        Permanent = "Permanent",
    }
}

object! {
    /// What a TCP route is.
    TcpRouteSpec {
        /// What it is attached to.
        parent_refs: Vec<ParentReference>,
        /// Whether it is attached to default gateways: `All` or `None`.
        use_default_gateways: Option<Box<str>>,
        /// The rules.
        rules: Vec<ConnectionRule>,
    }

    /// What a TLS route is.
    TlsRouteSpec {
        /// What it is attached to.
        parent_refs: Vec<ParentReference>,
        /// Whether it is attached to default gateways: `All` or `None`.
        use_default_gateways: Option<Box<str>>,
        /// The hosts that clients ask for.
        hostnames: Vec<Box<str>>,
        /// The rules.
        rules: Vec<ConnectionRule>,
    }

    /// What a UDP route is.
    UdpRouteSpec {
        /// What it is attached to.
        parent_refs: Vec<ParentReference>,
        /// Whether it is attached to default gateways: `All` or `None`.
        use_default_gateways: Option<Box<str>>,
        /// The rules.
        rules: Vec<ConnectionRule>,
    }

    /// Where connections go.
    ConnectionRule {
        /// Name of the rule.
        name: Option<Box<str>>,
        /// Where.
        backend_refs: Vec<BackendRef>,
    }

    /// Changes headers, in the order set, add, remove.
    HeaderModifier {
        /// Headers that get a value in place of theirs.
        set: Vec<Header>,
        /// Headers that get a further value.
        add: Vec<Header>,
        /// Headers that go.
        remove: Vec<Box<str>>,
    }

    /// A header.
    Header {
        /// Name of the header.
        name: Box<str>,
        /// Value of the header.
        value: Box<str> = "".into(),
    }

    /// Sends copies of requests elsewhere.
    RequestMirror {
        /// Where.
        backend_ref: BackendObjectReference = BackendObjectReference::default(),
        /// Share of requests that are mirrored, in percent.
        percent: Option<i32>,
        /// Share of requests that are mirrored, as a fraction.
        fraction: Option<Fraction>,
    }

    /// A share.
    Fraction {
        /// Numerator of the fraction.
        numerator: i32 = 0,
        /// of so many.
        denominator: i32 = 100,
    }

    /// How a client stays with one backend.
    SessionPersistence {
        /// The name of the cookie or header.
        session_name: Option<Box<str>>,
        /// For how long at most.
        absolute_timeout: Option<Box<str>>,
        /// By what it is known again.
        r#type: PersistenceType = PersistenceType::Cookie,
        /// Settings of the cookie.
        cookie_config: Option<CookieConfig>,
    }

    /// Settings of a cookie.
    CookieConfig {
        /// How long it lives.
        lifetime_type: CookieLifetime = CookieLifetime::Session,
    }
}

complete!(TcpRouteSpec, TlsRouteSpec, UdpRouteSpec);
