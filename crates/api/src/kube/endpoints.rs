//! EndpointSlices, and the Endpoints they took the place of.

use crate::decode::slim;
use crate::kube::TransportProtocol;
use crate::macros::{object, open_enum};
use crate::resource::Resource;

/// Some endpoints of a service.
pub type EndpointSlice = Resource<EndpointSliceData>;

/// All endpoints of a service in one object.
pub type Endpoints = Resource<EndpointsData>;

open_enum! {
    /// What the addresses of a slice are.
    AddressType {
        /// IPv4 addresses.
        Ipv4 = "IPv4",
        /// IPv6 addresses.
        Ipv6 = "IPv6",
        /// Host names.
        Fqdn = "FQDN",
    }
}

object! {
    /// What a slice holds.
    EndpointSliceData {
        /// What the addresses are.
        address_type: AddressType = AddressType::Ipv4,
        /// The endpoints.
        endpoints: Vec<Endpoint>,
        /// The ports that every endpoint has.
        ports: Vec<EndpointPort>,
    }

    /// An endpoint.
    Endpoint {
        /// Addresses of the endpoint; all of them reach the same one.
        addresses: Vec<Box<str>>,
        /// Whether traffic should go there.
        conditions: EndpointConditions,
        /// The name it has below a headless service.
        hostname: Option<Box<str>>,
        /// The pod behind it.
        target_ref: Option<ObjectReference>,
        /// The node it is on.
        node_name: Option<Box<str>>,
        /// The zone it is in.
        zone: Option<Box<str>>,
    }

    /// Whether traffic should go to an endpoint.
    #[derive(Copy)]
    EndpointConditions {
        /// The endpoint takes traffic. Absent counts as true.
        ready: Option<bool>,
        /// The endpoint would take traffic if it were not terminating.
        serving: Option<bool>,
        /// The endpoint is shutting down.
        terminating: Option<bool>,
    }

    /// A port of all endpoints of a slice.
    EndpointPort {
        /// The name of the service's port.
        name: Box<str>,
        /// The transport protocol.
        protocol: TransportProtocol = TransportProtocol::Tcp,
        /// The number; absent means all ports.
        port: Option<u16>,
        /// The application protocol.
        app_protocol: Option<Box<str>>,
    }

    /// What an Endpoints object holds.
    EndpointsData {
        /// Endpoints with the same ports.
        subsets: Vec<EndpointSubset>,
    }

    /// Endpoints with the same ports.
    EndpointSubset {
        /// Endpoints that take traffic.
        addresses: Vec<EndpointAddress>,
        /// Endpoints that do not take traffic.
        not_ready_addresses: Vec<EndpointAddress>,
        /// The ports.
        ports: Vec<EndpointPort>,
    }

    /// An endpoint of an Endpoints object.
    EndpointAddress {
        /// IP address of the endpoint.
        ip: Box<str>,
        /// The name it has below a headless service.
        hostname: Option<Box<str>>,
        /// The node it is on.
        node_name: Option<Box<str>>,
        /// The pod behind it.
        target_ref: Option<ObjectReference>,
    }

    /// A reference to an object.
    ObjectReference {
        /// Kind of the object.
        kind: Box<str>,
        /// Namespace of the object.
        namespace: Box<str>,
        /// Name of the object.
        name: Box<str>,
    }
}

slim!(EndpointSliceData in Root, EndpointsData in Root);
