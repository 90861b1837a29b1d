//! Envoy filters: changes to what proxies are told.

use super::Entry;

const ROUTE_NAME: &[(&str, &str)] = &[("name", "The name of the route.")];
const SUB_FILTER_NAME: &[(&str, &str)] = &[("name", "The name of the HTTP filter.")];
const FILTER: &[(&str, &str)] =
    &[("name", "The name of the filter."), ("sub_filter", "A filter within this one.")];

pub(super) const WORDS: &[Entry] = &[
    (
        "EnvoyFilter",
        "Changes to what Envoy proxies are told, for what no other kind can say. Check them with every upgrade.",
        &[
            ("workload_selector", "Which proxies it is for; all of the namespace by default."),
            ("targetRefs", "Gateways or services whose proxies it is for."),
            ("config_patches", "The changes, in this order."),
            ("priority", "Objects with smaller numbers come first; 0 by default."),
        ],
    ),
    (
        "EnvoyFilter.EnvoyConfigObjectPatch",
        "One change.",
        &[("apply_to", "What sort of thing is changed."), ("match", "Which of them."), ("patch", "How.")],
    ),
    (
        "EnvoyFilter.EnvoyConfigObjectMatch",
        "Which things are changed; everything that is set has to fit.",
        &[
            ("context", "In which sort of proxy, and in which direction."),
            ("proxy", "In which proxies."),
            ("listener", "In which listeners."),
            ("route_configuration", "In which tables of routes."),
            ("cluster", "Which clusters."),
            ("waypoint", "Where in a waypoint."),
        ],
    ),
    (
        "EnvoyFilter.ProxyMatch",
        "Which proxies.",
        &[
            ("proxy_version", "An expression that the version of the proxy matches."),
            ("metadata", "What the proxy says about itself."),
        ],
    ),
    (
        "EnvoyFilter.ListenerMatch",
        "Which listeners.",
        &[
            ("name", "The name."),
            ("port_number", "The port."),
            ("port_name", "Has no effect."),
            ("filter_chain", "Which of their chains."),
            ("listener_filter", "The name of the listener filter."),
        ],
    ),
    (
        "EnvoyFilter.ListenerMatch.FilterChainMatch",
        "Which chains of filters.",
        &[
            ("name", "The name."),
            ("sni", "A server name the chain is for."),
            ("transport_protocol", "The transport it is for: `raw_buffer` or `tls`."),
            ("application_protocols", "The protocols it is for, separated by commas."),
            ("filter", "Which of its filters."),
            ("destination_port", "The port it is for."),
            ("transport_socket", "The name of its transport socket."),
        ],
    ),
    ("EnvoyFilter.ListenerMatch.FilterMatch", "A filter.", FILTER),
    ("EnvoyFilter.ListenerMatch.SubFilterMatch", "An HTTP filter.", SUB_FILTER_NAME),
    (
        "EnvoyFilter.RouteConfigurationMatch",
        "Which tables of routes.",
        &[
            ("name", "The name."),
            ("port_number", "The port they are for."),
            ("port_name", "The name of the port of a gateway."),
            ("gateway", "The gateway they are for, as `namespace/name`."),
            ("vhost", "Which of their virtual hosts."),
        ],
    ),
    (
        "EnvoyFilter.RouteConfigurationMatch.VirtualHostMatch",
        "Which virtual hosts.",
        &[
            ("name", "The name, as `host:port`."),
            ("domain_name", "A domain it is for."),
            ("route", "Which of its routes."),
        ],
    ),
    (
        "EnvoyFilter.RouteConfigurationMatch.RouteMatch",
        "Which routes.",
        &[("name", "The name of the route."), ("action", "What it does with requests.")],
    ),
    (
        "EnvoyFilter.ClusterMatch",
        "Which clusters.",
        &[
            ("name", "The name."),
            ("port_number", "The port of the service; not looked at for inbound ones."),
            ("service", "The full name of the service."),
            ("subset", "The subset of the service."),
        ],
    ),
    (
        "EnvoyFilter.WaypointMatch",
        "Where in a waypoint.",
        &[
            ("port_number", "The port of the service."),
            ("route", "Which routes."),
            ("filter", "Which filters."),
        ],
    ),
    ("EnvoyFilter.WaypointMatch.RouteMatch", "A route.", ROUTE_NAME),
    ("EnvoyFilter.WaypointMatch.FilterMatch", "A filter.", FILTER),
    ("EnvoyFilter.WaypointMatch.FilterMatch.SubFilterMatch", "An HTTP filter.", SUB_FILTER_NAME),
    (
        "EnvoyFilter.Patch",
        "How a thing is changed.",
        &[
            ("operation", "What is done."),
            ("value", "What is merged or added, in Envoy's own form."),
            ("filter_class", "Where an HTTP filter is put that is added."),
        ],
    ),
];
