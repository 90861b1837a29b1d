//! Gateways, their classes, and the listener sets that add to them.

use canopus_base::labels::Labels;

use crate::decode::complete;
use crate::gateway_api::GROUP;
use crate::gateway_api::reference::{LocalObjectReference, ObjectReference, SecretReference};
use crate::gateway_api::status::{GatewayClassStatus, GatewayStatus, ListenerSetStatus};
use crate::macros::{object, open_enum};
use crate::resource::Resource;
use crate::value::LabelSelector;

/// A class of gateways and the controller that implements it.
pub type GatewayClass = Resource<GatewayClassSpec, GatewayClassStatus>;
/// A proxy at the edge of something.
pub type Gateway = Resource<GatewaySpec, GatewayStatus>;
/// Listeners that are added to a gateway from elsewhere.
pub type ListenerSet = Resource<ListenerSetSpec, ListenerSetStatus>;

open_enum! {
    /// Which namespaces may attach.
    FromNamespaces {
        /// The object's own.
        Same = "Same",
        /// All.
        All = "All",
        /// Namespaces with certain labels.
        Selector = "Selector",
        /// No namespaces.
        None = "None",
    }
}

open_enum! {
    /// What a listener does with TLS.
    TlsMode {
        /// Ends it.
        Terminate = "Terminate",
        /// Passes it on unread.
        Passthrough = "Passthrough",
    }
}

open_enum! {
    /// What a gateway does with clients whose certificate does not check.
    FrontendValidationMode {
        /// Refuses them.
        AllowValidOnly = "AllowValidOnly",
        /// Lets them in.
        AllowInsecureFallback = "AllowInsecureFallback",
    }
}

open_enum! {
    /// What a gateway's address is.
    AddressType {
        /// An IP address.
        IpAddress = "IPAddress",
        /// A host name.
        Hostname = "Hostname",
    }
}

object! {
    /// The controller that implements gateways of a class.
    GatewayClassSpec {
        /// The controller.
        controller_name: Box<str>,
        /// Settings for all gateways of the class.
        parameters_ref: Option<ObjectReference>,
        /// For people.
        description: Option<Box<str>>,
    }

    /// What a gateway is.
    GatewaySpec {
        /// Name of the GatewayClass.
        gateway_class_name: Box<str>,
        /// Where it listens for what.
        listeners: Vec<Listener>,
        /// Where it should be reached.
        addresses: Vec<GatewayAddress>,
        /// What the objects that make it are to carry.
        infrastructure: Option<GatewayInfrastructure>,
        /// The namespaces whose ListenerSets may add listeners.
        allowed_listeners: Option<AllowedListeners>,
        /// Certificates for the gateway as a whole.
        tls: Option<GatewayTls>,
        /// Which routes that name no gateway are attached: `All` or `None`.
        default_scope: Option<Box<str>>,
    }

    /// What the objects that make a gateway are to carry.
    GatewayInfrastructure {
        /// Labels.
        labels: Labels,
        /// Annotations.
        annotations: Labels,
        /// Settings.
        parameters_ref: Option<LocalObjectReference>,
    }

    /// Where a gateway should be reached.
    GatewayAddress {
        /// What the value is.
        r#type: AddressType = AddressType::IpAddress,
        /// The address; absent leaves the choice to the controller.
        value: Option<Box<str>>,
    }

    /// Where a gateway listens, and for what.
    Listener {
        /// Name of the listener.
        name: Box<str>,
        /// The hosts it serves; absent for all.
        hostname: Option<Box<str>>,
        /// The port.
        port: u16,
        /// The protocol: `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP`, or one of somebody else's.
        protocol: Box<str>,
        /// What it does with TLS.
        tls: Option<ListenerTls>,
        /// Which routes may attach.
        allowed_routes: AllowedRoutes = AllowedRoutes::default(),
    }

    /// What a listener does with TLS.
    ListenerTls {
        /// Whether it ends it.
        mode: TlsMode = TlsMode::Terminate,
        /// The certificates it shows.
        certificate_refs: Vec<SecretReference>,
        /// What implementations understand beyond.
        options: Labels,
    }

    /// Which routes may attach to a listener.
    AllowedRoutes {
        /// From which namespaces.
        namespaces: RouteNamespaces = RouteNamespaces::default(),
        /// Kinds of routes that may attach; none means those of the listener's protocol.
        kinds: Vec<RouteGroupKind>,
    }

    /// From which namespaces routes may attach.
    RouteNamespaces {
        /// Which.
        from: FromNamespaces = FromNamespaces::Same,
        /// The labels, for `Selector`.
        selector: Option<LabelSelector>,
    }

    /// A kind of routes.
    RouteGroupKind {
        /// The group.
        group: Box<str> = GROUP.into(),
        /// The kind.
        kind: Box<str>,
    }

    /// The namespaces whose ListenerSets may add listeners to a gateway.
    AllowedListeners {
        /// From which namespaces.
        namespaces: ListenerNamespaces = ListenerNamespaces::default(),
    }

    /// From which namespaces listeners may be added.
    ListenerNamespaces {
        /// Which.
        from: FromNamespaces = FromNamespaces::None,
        /// The labels, for `Selector`.
        selector: Option<LabelSelector>,
    }

    /// Certificates for a gateway as a whole.
    GatewayTls {
        /// Towards backends.
        backend: Option<GatewayBackendTls>,
        /// Towards clients.
        frontend: Option<GatewayFrontendTls>,
    }

    /// What a gateway shows to backends.
    GatewayBackendTls {
        /// Client certificate that the gateway presents to backends.
        client_certificate_ref: Option<SecretReference>,
    }

    /// How a gateway checks clients.
    GatewayFrontendTls {
        /// On all ports without a rule of their own.
        default: FrontendTls,
        /// On single ports.
        per_port: Vec<PortTls>,
    }

    /// How clients of one port are checked.
    PortTls {
        /// The port.
        port: u16,
        /// How.
        tls: FrontendTls,
    }

    /// How clients are checked.
    FrontendTls {
        /// Absent: not at all.
        validation: Option<FrontendValidation>,
    }

    /// How the certificates of clients are checked.
    FrontendValidation {
        /// The roots.
        ca_certificate_refs: Vec<ObjectReference>,
        /// What happens to those that do not check.
        mode: FrontendValidationMode = FrontendValidationMode::AllowValidOnly,
    }

    /// Listeners that are added to a gateway.
    ListenerSetSpec {
        /// The gateway.
        parent_ref: ListenerSetParent = ListenerSetParent::default(),
        /// The listeners.
        listeners: Vec<Listener>,
    }

    /// The gateway of a listener set.
    ListenerSetParent {
        /// Group of the parent.
        group: Box<str> = GROUP.into(),
        /// Kind of the parent.
        kind: Box<str> = "Gateway".into(),
        /// Namespace of the parent; absent means the set's.
        namespace: Option<Box<str>>,
        /// Name of the parent.
        name: Box<str>,
    }
}

complete!(GatewayClassSpec, GatewaySpec, ListenerSetSpec);
