//! VirtualServices: missing destinations, gateways and delegates, and duplicate hosts.

use std::sync::Arc;

use canopus_api::istio::VirtualService as Object;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::Ctx;
use canopus_proto::istio::networking::v1alpha3::{Destination, VirtualService};

use super::{Findings, Problem, Severity};
use crate::destination_rule::RulesFor;
use crate::gateway::Gateways;
use crate::service::{Service, ServicesByHost, is_visible};
use crate::virtual_service::{MESH, bound_to, gateway_name, may_delegate};
use crate::world::{Origin, object, qualified_host, settings};

const NO_SUCH_HOST: Problem = (
    "IST0101",
    Severity::Error,
    "define the host with a Service or a ServiceEntry, or export it to this namespace",
);
const NO_SUCH_SUBSET: Problem =
    ("IST0101", Severity::Error, "add the subset to a DestinationRule of the host that this namespace sees");
const NO_SUCH_PORT: Problem = ("CAN0101", Severity::Error, "name a port that the service has");
const AMBIGUOUS_PORT: Problem = ("IST0112", Severity::Warning, "say which port of the destination is meant");
const NO_SUCH_GATEWAY: Problem = ("IST0101", Severity::Error, "create the Gateway, or correct its name");
const NO_SUCH_DELEGATE: Problem = ("IST0101", Severity::Error, "create the delegate, or correct its name");
const UNUSABLE_DELEGATE: Problem =
    ("CAN0102", Severity::Error, "a delegate has no hosts, no delegates of its own, and is exported here");
const DUPLICATE_HOST: Problem = ("IST0109", Severity::Error, "merge the VirtualServices into one");

pub(super) fn check(ctx: &Ctx<'_>, object: &Object, findings: &mut Findings<'_>) {
    destinations(ctx, &object.spec, findings);
    gateways(ctx, &object.spec, findings);
    delegates(ctx, object, findings);
    duplicate_hosts(ctx, object, findings);
}

fn destinations(ctx: &Ctx<'_>, spec: &VirtualService, findings: &mut Findings<'_>) {
    for (field, destination) in written(spec) {
        check_destination(ctx, &field, destination, findings);
    }
}

/// Every destination with its field path.
fn written(spec: &VirtualService) -> Vec<(String, &Destination)> {
    let mut found = Vec::new();
    for (at, http) in spec.http.iter().enumerate() {
        let routes = http.route.iter().map(|route| route.destination.as_ref());
        found.extend(numbered(&format!("spec.http[{at}].route"), routes));
        let mirrors = http.mirrors.iter().map(|mirror| mirror.destination.as_ref());
        found.extend(numbered(&format!("spec.http[{at}].mirrors"), mirrors));
        found.extend(http.mirror.as_ref().map(|mirror| (format!("spec.http[{at}].mirror"), mirror)));
    }
    for (at, tcp) in spec.tcp.iter().enumerate() {
        let routes = tcp.route.iter().map(|route| route.destination.as_ref());
        found.extend(numbered(&format!("spec.tcp[{at}].route"), routes));
    }
    for (at, tls) in spec.tls.iter().enumerate() {
        let routes = tls.route.iter().map(|route| route.destination.as_ref());
        found.extend(numbered(&format!("spec.tls[{at}].route"), routes));
    }
    found
}

fn numbered<'a>(
    list: &str,
    destinations: impl Iterator<Item = Option<&'a Destination>>,
) -> impl Iterator<Item = (String, &'a Destination)> {
    let numbered = destinations.enumerate();
    numbered.filter_map(move |(at, to)| Some((format!("{list}[{at}].destination"), to?)))
}

fn check_destination(ctx: &Ctx<'_>, field: &str, destination: &Destination, findings: &mut Findings<'_>) {
    let namespace = findings.origin.namespace();
    let host = qualified_host(&destination.host, namespace, &settings(ctx).domain);
    let services = visible(ctx, &host, namespace);
    let Some(service) = services.first() else {
        let message =
            format!("nothing that namespace {namespace} sees is called {host}: such requests get 503");
        findings.add(NO_SUCH_HOST, format!("{field}.host"), message);
        return;
    };
    let number = destination.port.as_ref().map_or(0, |port| port.number);
    if number != 0 && services.iter().all(|service| service.port(number).is_none()) {
        let ports = ports(service);
        findings.add(
            NO_SUCH_PORT,
            format!("{field}.port"),
            format!("{host} has no port {number}, only {ports}"),
        );
    } else if number == 0 && service.ports.len() > 1 {
        let message = format!("{host} has the ports {}: the one of the listener is taken", ports(service));
        findings.add(AMBIGUOUS_PORT, format!("{field}.port"), message);
    }
    if !destination.subset.is_empty() && !has_subset(ctx, namespace, &services, &destination.subset) {
        let message = format!("no DestinationRule of {host} has a subset {}", destination.subset);
        findings.add(NO_SUCH_SUBSET, format!("{field}.subset"), message);
    }
}

fn visible(ctx: &Ctx<'_>, host: &str, namespace: &str) -> Vec<Arc<Service>> {
    let by_namespace = ctx.get::<ServicesByHost>(&host.into());
    by_namespace.values().filter(|service| is_visible(ctx, service, namespace)).cloned().collect()
}

fn ports(service: &Service) -> String {
    service.ports.iter().map(|port| port.number.to_string()).collect::<Vec<_>>().join(", ")
}

fn has_subset(ctx: &Ctx<'_>, namespace: &str, services: &[Arc<Service>], subset: &str) -> bool {
    services.iter().any(|service| {
        let rules = ctx.get::<RulesFor>(&(namespace.into(), service.key()));
        rules.iter().any(|rule| rule.subset(subset).is_some())
    })
}

fn gateways(ctx: &Ctx<'_>, spec: &VirtualService, findings: &mut Findings<'_>) {
    let known = ctx.get::<Gateways>(&());
    for (at, written) in spec.gateways.iter().enumerate().filter(|(_, written)| *written != MESH) {
        let name = gateway_name(written, findings.origin.namespace());
        if known.iter().all(|gateway| gateway.qualified_name() != name) {
            findings.add(
                NO_SUCH_GATEWAY,
                format!("spec.gateways[{at}]"),
                format!("there is no Gateway {name}"),
            );
        }
    }
}

fn delegates(ctx: &Ctx<'_>, object: &Object, findings: &mut Findings<'_>) {
    let origin = findings.origin;
    for (at, http) in object.spec.http.iter().enumerate() {
        let Some(delegate) = &http.delegate else { continue };
        let field = format!("spec.http[{at}].delegate");
        let namespace = if delegate.namespace.is_empty() { origin.namespace() } else { &delegate.namespace };
        let key = ObjectKey::new(Kind::VirtualService, namespace, &delegate.name);
        if object.spec.hosts.is_empty() {
            let message = format!("{key} is not asked: a delegate's delegates do not count");
            findings.add(UNUSABLE_DELEGATE, field, message);
            continue;
        }
        let name = key.to_string();
        let Some(found) = self::object::<Object>(ctx, &Origin::new(origin.cluster.clone(), key)) else {
            findings.add(NO_SUCH_DELEGATE, field, format!("there is no {name}: the route is left out"));
            continue;
        };
        if !found.spec.hosts.is_empty() {
            let message =
                format!("{name} has hosts of its own, so it is nobody's delegate: the route is left out");
            findings.add(UNUSABLE_DELEGATE, field, message);
        } else if !may_delegate(&found, namespace, origin.namespace(), &settings(ctx)) {
            let message =
                format!("{name} is not exported to namespace {}: the route is left out", origin.namespace());
            findings.add(UNUSABLE_DELEGATE, field, message);
        }
    }
}

/// Reports hosts that an older VirtualService owns in sidecars. Gateways merge the routes of both.
fn duplicate_hosts(ctx: &Ctx<'_>, object: &Object, findings: &mut Findings<'_>) {
    let origin = findings.origin;
    let for_sidecars = bound_to(ctx, &MESH.into());
    let Some(own) = for_sidecars.iter().find(|one| one.origin == *origin) else { return };
    let older = for_sidecars.iter().take_while(|one| one.origin != *origin);
    let rivals: Vec<_> = older.filter(|rival| !rival.export_to.is_disjoint(&own.export_to)).collect();
    for (at, host) in own.spec.hosts.iter().enumerate() {
        if let Some(rival) = rivals.iter().find(|rival| rival.spec.hosts.contains(host)) {
            let written = object.spec.hosts.get(at).unwrap_or(host);
            let message =
                format!("{} is older and has the host {written}: sidecars follow that one", rival.origin.key);
            findings.add(DUPLICATE_HOST, format!("spec.hosts[{at}]"), message);
        }
    }
}
