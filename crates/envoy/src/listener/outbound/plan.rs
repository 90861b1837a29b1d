//! Which outbound listeners there are and what chains each has.
//!
//! Services that share an address and port share a listener as far as that is possible; the older service wins where it
//! is not. Nothing is built here, so that a change of one service costs its own listener and this plan.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use canopus_base::FastMap;
use canopus_base::net::parse_ip;
use canopus_base::protocol::Protocol;
use canopus_engine::Ctx;
use canopus_mesh::audience::Addressing;
use canopus_mesh::endpoint::{Endpoint, Endpoints};
use canopus_mesh::list::List;
use canopus_mesh::scope::{self, EgressListener};
use canopus_mesh::service::{NO_ADDRESS, Port, Resolution, Service, known_address, known_addresses};
use canopus_mesh::virtual_service::VirtualService;
use canopus_proto::istio::networking::v1alpha3::{CaptureMode, SidecarPort};
use canopus_runtime::flags::PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER;

use super::tcp;
use crate::address::{self, UNIX_PREFIX};
use crate::audience::Interception;
use crate::env::Env;
use crate::listener::chain::{Chain, Content, Http, Taken};
use crate::listener::port::{Handling, Wanted};

/// Address and port of a listener.
pub(super) type ListenerKey = (String, u32);

/// All outbound listeners of an audience, to be built.
#[derive(PartialEq)]
pub(super) struct Plan {
    /// The listeners, by address and port.
    pub(super) listeners: Vec<Arc<Entry>>,
    /// Listeners where a chain found no place, because an older service has one with the same match.
    pub(super) crowded: BTreeSet<ListenerKey>,
}

/// A listener to be built.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Where it listens.
    pub(crate) binding: Binding,
    /// The port it is for, as the first service that needed it has it.
    pub(crate) port: Port,
    /// Filter chains in the order in which they are written.
    pub(in crate::listener) chains: Vec<Chain>,
    /// What is known to be spoken on it.
    protocol: Protocol,
    /// Whether a Sidecar chose who is on it.
    locked: bool,
}

impl Eq for Entry {}

impl Hash for Entry {
    /// Where it listens is enough: what else is planned there changes, but seldom is there more than one plan for a place.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
    }
}

impl Entry {
    /// The address and port it is named after.
    fn place(&self) -> (&str, u32) {
        (self.binding.primary(), self.port.number)
    }

    /// Whether requests are looked at on it.
    pub(super) fn has_http(&self) -> bool {
        self.chains.iter().any(|chain| matches!(chain.content, Content::Http(_)))
    }

    /// Whether a VirtualService says where some connections go.
    pub(super) fn is_routed(&self) -> bool {
        self.chains.iter().any(|chain| matches!(chain.content, Content::Routed(_)))
    }

    /// The services that chains lead to without routes, chain by chain.
    pub(super) fn services(&self) -> impl Iterator<Item = &Service> {
        self.chains.iter().filter_map(|chain| match &chain.content {
            Content::Service(to) => Some(&*to.service),
            Content::Http(_) | Content::Routed(_) => None,
        })
    }

    /// A listener whose chains are known.
    pub(in crate::listener) fn new(binding: Binding, port: Port, chains: Vec<Chain>) -> Self {
        let protocol = port.protocol;
        Self { binding, port, chains, protocol, locked: false }
    }
}

/// Where a listener listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The addresses, the one it is named after first; none if they follow from the service.
    pub(crate) addresses: Vec<String>,
    /// Whether it is a socket of the operating system rather than a target of redirection.
    pub(crate) to_port: bool,
}

impl Binding {
    /// The address it is named after; empty if there is none.
    pub(crate) fn primary(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// The other addresses.
    pub(crate) fn extra(&self) -> &[String] {
        self.addresses.get(1..).unwrap_or_default()
    }
}

/// One port of a service that is to be reachable.
#[derive(Clone)]
pub(super) struct Request<'a> {
    pub(super) service: &'a Arc<Service>,
    pub(super) port: &'a Port,
    pub(super) binding: Binding,
    /// Addresses that tell its connections from those of others on the same listener.
    pub(super) destinations: Vec<String>,
    /// Whether `destinations` are those of single endpoints.
    pub(super) per_endpoint: bool,
    pub(super) virtual_services: &'a List<VirtualService>,
}

/// How a listener that is there and one that is wanted at the same place get along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// No listener has the port yet.
    Nothing,
    /// The wanted one takes its place.
    Replaces,
    /// Both become one listener that looks at the first bytes.
    MixesWith,
    /// Both become one listener as they are.
    Joins,
}

/// The plan for an audience. Endpoints of headless services at `own` address are left out: traffic of a workload to itself
/// does not pass its proxy.
pub(super) fn plan(env: &Env<'_>, own: Option<&str>) -> Plan {
    let mut planner = Planner {
        env,
        own,
        wildcards: address::wildcards(&env.audience.addressing),
        interception: env.audience.sockets.interception,
        slots: Vec::new(),
        places: FastMap::default(),
        crowded: BTreeSet::new(),
    };
    for listener in &scope::scope(env.ctx, env.audience.scope()).listeners {
        planner.add_listener(listener);
    }
    let mut listeners: Vec<_> = planner.slots.into_iter().map(|slot| Arc::new(slot.entry)).collect();
    listeners.sort_unstable_by(|a, b| a.place().cmp(&b.place()));
    Plan { listeners, crowded: planner.crowded }
}

/// Whether each endpoint of a service's port gets a listener of its own: without an address of the service, that is how
/// TCP connections to it are recognised.
pub(super) fn listens_per_endpoint(service: &Service, addressing: &Addressing, port: &Port) -> bool {
    service.resolution == Resolution::Passthrough
        && known_address(service, addressing) == NO_ADDRESS
        && (port.protocol.is_tcp() || port.protocol.is_unsupported())
}

/// The endpoints of a service's port that have a listener of their own.
pub(super) fn listening_endpoints(ctx: &Ctx<'_>, service: &Service, port: &Port) -> Vec<Arc<Endpoint>> {
    let all = ctx.get::<Endpoints>(&service.key());
    all.iter().filter(|endpoint| endpoint.is_for(&port.name, port.number)).cloned().collect()
}

struct Planner<'a> {
    env: &'a Env<'a>,
    own: Option<&'a str>,
    wildcards: Vec<String>,
    interception: Interception,
    slots: Vec<Slot>,
    /// Positions in `slots`, by address and port.
    places: FastMap<String, BTreeMap<u32, usize>>,
    crowded: BTreeSet<ListenerKey>,
}

/// A listener in the making.
struct Slot {
    entry: Entry,
    taken: Taken,
}

impl Planner<'_> {
    fn add_listener(&mut self, listener: &EgressListener) {
        let binding = self.binding(listener);
        let written = listener.written.as_ref().and_then(|written| written.port.as_ref());
        if let Some(written) = written {
            let port = sidecar_port(written);
            if !self.has_all(&binding, &port) && self.allows(&binding, &port) {
                for service in &listener.services {
                    self.add(Request::new(service, &port, binding.clone(), &listener.virtual_services));
                }
            }
            return;
        }
        // Who is on a port that the Sidecar lists is decided; this is for all other ports.
        self.slots.iter_mut().for_each(|slot| slot.entry.locked = true);
        for service in &listener.services {
            for port in &service.ports {
                if self.has_all(&binding, port) || !self.allows(&binding, port) {
                    continue;
                }
                let request = Request::new(service, port, binding.clone(), &listener.virtual_services);
                if binding.addresses.is_empty()
                    && listens_per_endpoint(service, &self.env.audience.addressing, port)
                {
                    self.add_endpoints(&request);
                } else {
                    self.add(request);
                }
            }
        }
    }

    /// Where the listeners of an egress listener listen, if that does not follow from each service.
    fn binding(&self, listener: &EgressListener) -> Binding {
        let written = listener.written.as_ref();
        let bind = written.map_or("", |written| written.bind.as_str());
        let to_port = self.interception == Interception::None
            || written.is_some_and(|written| written.capture_mode() == CaptureMode::None)
            || bind.starts_with(UNIX_PREFIX);
        let addresses = match bind {
            "" if to_port => address::loopbacks(&self.env.audience.addressing),
            "" => Vec::new(),
            bind => vec![bind.to_owned()],
        };
        Binding { addresses, to_port }
    }

    /// Whether a port has all it needs already, as most HTTP ports have: they share a listener.
    fn has_all(&self, binding: &Binding, port: &Port) -> bool {
        let handling = Handling::for_protocol(port.protocol);
        let shares = handling == Handling::Http && binding.addresses.is_empty();
        shares && self.meet(&self.wildcards[0], port, handling).is_none()
    }

    fn allows(&self, binding: &Binding, port: &Port) -> bool {
        let wanted = Wanted {
            bind: binding.primary(),
            port: port.number,
            protocol: port.protocol,
            to_port: binding.to_port,
        };
        wanted.is_allowed(&self.env.audience.sockets, &self.wildcards[0], Some(self.env.mesh()))
    }

    fn add_endpoints(&mut self, request: &Request<'_>) {
        let endpoints = listening_endpoints(self.env.ctx, request.service, request.port);
        let may_get_some = request.service.is_kubernetes() || !request.service.selector.is_empty();
        if endpoints.is_empty() && !may_get_some {
            self.add(request.clone());
            return;
        }
        let in_one =
            request.port.protocol.is_tcp() && self.env.flag(PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER);
        for endpoint in endpoints {
            let is_own = Some(endpoint.address()) == self.own;
            // WorkloadEntries may have host names.
            if is_own || endpoint.addresses.iter().any(|address| parse_ip(address).is_err()) {
                continue;
            }
            let addresses = endpoint.addresses.iter().map(ToString::to_string).collect();
            let mut request = request.clone();
            if in_one {
                request.binding.addresses.clone_from(&self.wildcards);
                request.destinations = addresses;
                request.per_endpoint = true;
            } else {
                request.binding.addresses = addresses;
            }
            self.add(request);
        }
    }

    fn add(&mut self, mut request: Request<'_>) {
        let handling = Handling::for_protocol(request.port.protocol);
        if request.service.resolution == Resolution::Alias || handling == Handling::Nothing {
            return;
        }
        if request.binding.addresses.is_empty() {
            self.bind(&mut request, handling);
        }
        let Some(meeting) = self.meet(request.binding.primary(), request.port, handling) else { return };
        let (chains, protocol) = self.chains(&request, handling, meeting);
        let known = self.position(request.binding.primary(), request.port.number);
        match known.and_then(|position| self.slots.get_mut(position)) {
            Some(Slot { entry, taken }) if matches!(meeting, Meeting::MixesWith | Meeting::Joins) => {
                if !taken.merge(&mut entry.chains, chains) {
                    self.crowded.insert((request.binding.primary().to_owned(), request.port.number));
                }
                if meeting == Meeting::MixesWith {
                    entry.protocol = Protocol::Unsupported;
                }
            }
            present => {
                let port = request.port.clone();
                let entry = Entry { binding: request.binding, port, chains, protocol, locked: false };
                let slot = Slot { entry, taken: Taken::default() };
                match present {
                    Some(present) => *present = slot,
                    None => self.open(slot),
                }
            }
        }
    }

    fn open(&mut self, slot: Slot) {
        let (address, port) = slot.entry.place();
        self.places.entry(address.to_owned()).or_default().insert(port, self.slots.len());
        self.slots.push(slot);
    }

    fn position(&self, address: &str, port: u32) -> Option<usize> {
        self.places.get(address)?.get(&port).copied()
    }

    /// How a port gets along with the listener there is at its place; `None` if it does not, or needs nothing more.
    fn meet(&self, address: &str, port: &Port, handling: Handling) -> Option<Meeting> {
        let present = self.position(address, port.number).map(|position| &self.slots[position].entry);
        if present.is_some_and(|present| present.locked) {
            return None;
        }
        meet(present.map(|present| present.protocol), port.protocol, handling)
    }

    /// HTTP ports share a listener on all interfaces; others listen at the address of the service if it has one.
    fn bind(&self, request: &mut Request<'_>, handling: Handling) {
        if handling == Handling::Http {
            request.binding.addresses.clone_from(&self.wildcards);
            return;
        }
        let (addressing, service) = (&self.env.audience.addressing, request.service);
        let settings = &self.env.settings;
        let extra = known_addresses(settings, service, addressing);
        let mut addresses = Vec::with_capacity(extra.len() + 1);
        addresses.push(known_address(service, addressing).to_owned());
        addresses.extend(extra.iter().skip(1).cloned());
        if !service.is_kubernetes() && addresses[0] == NO_ADDRESS {
            match (addressing.ipv4, addressing.ipv6) {
                (false, true) => addresses[0] = "::".into(),
                (true, true) => addresses.push("::".into()),
                _ => {}
            }
        }
        if addresses[0].contains('/') {
            request.binding.addresses.clone_from(&self.wildcards);
            request.destinations = addresses;
        } else {
            request.binding.addresses = addresses;
        }
    }

    /// The chains a service's port needs, and what is then known to be spoken on the listener.
    fn chains(&self, request: &Request<'_>, handling: Handling, meeting: Meeting) -> (Vec<Chain>, Protocol) {
        let protocol = request.port.protocol;
        if protocol == Protocol::HttpProxy {
            return (vec![self.http(request, handling)], protocol);
        }
        match handling {
            Handling::Http => {
                let chain = self.http(request, handling);
                // On all interfaces there may be TCP for others, so the first bytes decide.
                if request.binding.primary() == self.wildcards[0] {
                    (vec![self.sniffed(chain)], Protocol::Unsupported)
                } else {
                    (vec![chain], protocol)
                }
            }
            Handling::Auto if meeting != Meeting::Joins => {
                let mut chains = tcp::chains(self.env, request);
                chains.push(self.sniffed(self.http(request, handling)));
                (chains, protocol)
            }
            _ => (tcp::chains(self.env, request), protocol),
        }
    }

    fn http(&self, request: &Request<'_>, handling: Handling) -> Chain {
        let (service, port) = (request.service, request.port.number);
        let bind = request.binding.primary();
        let table = if port == 0 {
            bind.to_owned()
        } else if handling == Handling::Auto && bind != self.wildcards[0] {
            format!("{}:{port}", service.host)
        } else {
            port.to_string()
        };
        let protocol = request.port.protocol;
        Chain::new(Content::Http(Http {
            table,
            protocol,
            service: Some(service.clone()),
            forward_proxy: false,
        }))
    }

    fn sniffed(&self, chain: Chain) -> Chain {
        Chain { sniffed: Some(plain_http(self.env)), ..chain }
    }
}

impl<'a> Request<'a> {
    fn new(
        service: &'a Arc<Service>,
        port: &'a Port,
        binding: Binding,
        virtual_services: &'a List<VirtualService>,
    ) -> Self {
        Self { service, port, binding, destinations: Vec::new(), per_endpoint: false, virtual_services }
    }
}

/// The versions of HTTP that are recognised in plain text. One that would be refused is better passed on as bytes.
pub(crate) fn plain_http(env: &Env<'_>) -> &'static [&'static str] {
    let all = &["http/1.0", "http/1.1", "h2c"];
    if env.flag(canopus_runtime::flags::PILOT_HTTP10) { all } else { &all[1..] }
}

/// How what is wanted gets along with what is there; `None` if the latter excludes or includes it.
fn meet(present: Option<Protocol>, wanted: Protocol, handling: Handling) -> Option<Meeting> {
    let Some(present) = present else { return Some(Meeting::Nothing) };
    if wanted == Protocol::HttpProxy {
        return Some(Meeting::Nothing);
    }
    let meeting = match handling {
        Handling::Http if present.is_tcp() => Meeting::MixesWith,
        // Route tables have all services of the port already.
        Handling::Http => return None,
        Handling::Tcp if present.is_http() => Meeting::MixesWith,
        Handling::Tcp => Meeting::Joins,
        Handling::Auto if present.is_http() => Meeting::Replaces,
        Handling::Auto if present.is_tcp() => Meeting::MixesWith,
        Handling::Auto => Meeting::Joins,
        Handling::Nothing => return None,
    };
    // Servers of these speak first, and looking at the client's first bytes would hang them.
    let silent = |protocol| matches!(protocol, Protocol::Mongo | Protocol::MySql);
    let excluded = (silent(wanted) || silent(present)) && wanted != present;
    (!excluded).then_some(meeting)
}

fn sidecar_port(written: &SidecarPort) -> Port {
    Port {
        number: written.number,
        name: written.name.as_str().into(),
        protocol: Protocol::parse(&written.protocol),
    }
}
