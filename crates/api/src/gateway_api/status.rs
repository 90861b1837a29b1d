//! What controllers report about Gateway API objects.

use crate::decode::complete;
use crate::gateway_api::gateway::{AddressType, RouteGroupKind};
use crate::gateway_api::reference::ParentReference;
use crate::macros::object;
use crate::value::Condition;

object! {
    /// What became of a class.
    GatewayClassStatus {
        /// Observations.
        conditions: Vec<Condition>,
        /// What gateways of the class can do, sorted by name.
        supported_features: Vec<SupportedFeature>,
    }

    /// A feature that a GatewayClass supports.
    SupportedFeature {
        /// Name of the feature.
        name: Box<str>,
    }

    /// What became of a gateway.
    GatewayStatus {
        /// Where it is reached.
        addresses: Vec<GatewayStatusAddress>,
        /// How many listener sets add to it.
        attached_listener_sets: Option<i32>,
        /// Observations.
        conditions: Vec<Condition>,
        /// What became of its listeners.
        listeners: Vec<ListenerStatus>,
    }

    /// Where a gateway is reached.
    GatewayStatusAddress {
        /// What the value is.
        r#type: AddressType = AddressType::IpAddress,
        /// The address.
        value: Box<str>,
    }

    /// What became of a listener.
    ListenerStatus {
        /// Name of the listener.
        name: Box<str>,
        /// How many routes are attached.
        attached_routes: i32 = 0,
        /// Observations.
        conditions: Vec<Condition> = Vec::new(),
        /// The kinds of routes it takes.
        supported_kinds: Vec<RouteGroupKind>,
    }

    /// What became of a listener set.
    ListenerSetStatus {
        /// Observations.
        conditions: Vec<Condition>,
        /// What became of its listeners.
        listeners: Vec<ListenerStatus>,
    }

    /// What one controller made of a route under one parent.
    RouteParentStatus {
        /// The parent.
        parent_ref: ParentReference = ParentReference::default(),
        /// The controller.
        controller_name: Box<str> = "".into(),
        /// Observations.
        conditions: Vec<Condition> = Vec::new(),
    }

    /// What one controller made of a policy for one object it affects.
    PolicyAncestorStatus {
        /// The object.
        ancestor_ref: ParentReference = ParentReference::default(),
        /// The controller.
        controller_name: Box<str> = "".into(),
        /// Observations.
        conditions: Vec<Condition> = Vec::new(),
    }

    /// What became of a route.
    RouteStatus {
        /// Under each parent, by each controller.
        parents: Vec<RouteParentStatus>,
    }

    /// What became of a policy.
    PolicyStatus {
        /// For each object it affects, by each controller.
        ancestors: Vec<PolicyAncestorStatus>,
    }
}

complete!(GatewayClassStatus, GatewayStatus, ListenerSetStatus, RouteStatus, PolicyStatus);
