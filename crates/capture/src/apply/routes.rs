//! Addresses and routes that rules rely on.
//!
//! They are set through netlink because images that have iptables need not have `ip`. Each step prints as the `ip`
//! command it stands for.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use crate::ambient::AmbientConfig;
use crate::config::{CaptureConfig, Family};

/// One address or route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteStep {
    /// Packets with a mark use a routing table.
    MarkRule {
        /// The packets' family.
        family: Family,
        /// The mark.
        mark: u32,
        /// The bits of the mark that are looked at; `None` for all.
        mask: Option<u32>,
        /// The table.
        table: u32,
        /// The rule's place among all rules.
        priority: u32,
    },
    /// A routing table delivers everything locally.
    LocalRoute {
        /// The packets' family.
        family: Family,
        /// The table.
        table: u32,
    },
    /// The source address of the passthrough cluster. IPv4 needs none: all of 127.0.0.0/8 is local.
    PassthroughAddress,
}

/// The address of [`RouteStep::PassthroughAddress`].
const PASSTHROUGH: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// What a sidecar's rules rely on.
pub fn sidecar_routes(config: &CaptureConfig) -> Vec<RouteStep> {
    let mut steps = Vec::new();
    if config.ipv6 {
        steps.push(RouteStep::PassthroughAddress);
    }
    if config.needs_tproxy_route() {
        let (mark, table) = (config.tproxy_mark, config.tproxy_route_table);
        let rule = |&family| RouteStep::MarkRule { family, mark, mask: None, table, priority: RULE_PRIORITY };
        steps.extend(config.families().iter().map(rule));
        steps.extend(config.families().iter().map(|&family| RouteStep::LocalRoute { family, table }));
    }
    steps
}

/// What the rules of a pod in ambient mode rely on: packets of connections that ztunnel took over come back to it.
pub fn ambient_routes(config: &AmbientConfig) -> Vec<RouteStep> {
    let rule = |&family| RouteStep::MarkRule {
        family,
        mark: 0x111,
        mask: Some(0xfff),
        table: AMBIENT_TABLE,
        priority: AMBIENT_PRIORITY,
    };
    let route = |&family| RouteStep::LocalRoute { family, table: AMBIENT_TABLE };
    let families = config.families();
    families.iter().map(rule).chain(families.iter().map(route)).collect()
}

impl fmt::Display for RouteStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MarkRule { family, mark, mask, table, priority } => {
                let mark = mask.map_or_else(|| mark.to_string(), |mask| format!("{mark:#x}/{mask:#x}"));
                write!(f, "ip {} rule add fwmark {mark} lookup {table} pref {priority}", option(*family))
            }
            Self::LocalRoute { family, table } => {
                write!(f, "ip {} route add local default dev lo table {table}", option(*family))
            }
            Self::PassthroughAddress => write!(f, "ip -6 addr add {PASSTHROUGH}/128 dev lo"),
        }
    }
}

fn option(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

/// Why an address or route could not be set.
#[derive(Debug, thiserror::Error)]
#[error("cannot do `{step}`: {source}{}", remedy(source))]
pub struct RouteError {
    step: RouteStep,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; it needs the capability NET_ADMIN in this network namespace",
        _ => "",
    }
}

/// Sets addresses and routes. Those that are there stay.
pub fn add_routes(steps: &[RouteStep]) -> Result<(), RouteError> {
    for &step in steps {
        match add(step) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(RouteError { step, source: error });
            }
            _ => tracing::info!("did `{step}`"),
        }
    }
    Ok(())
}

/// Takes addresses and routes away. Those that are not there are no error.
pub fn remove_routes(steps: &[RouteStep]) -> Result<(), RouteError> {
    let is_gone = |error: &io::Error| {
        let gone = [Errno::ENOENT, Errno::ESRCH, Errno::EADDRNOTAVAIL].map(|errno| errno as i32);
        error.raw_os_error().is_some_and(|code| gone.contains(&code))
    };
    for &step in steps {
        // A tool that names no priority adds its rule once more each time it runs, so there may be several.
        for _ in 0..RULES_MAX {
            match remove(step) {
                Ok(()) => tracing::debug!("undid `{step}`"),
                Err(error) if is_gone(&error) => break,
                Err(error) => return Err(RouteError { step, source: error }),
            }
        }
    }
    Ok(())
}

/// More equal rules than this are not removed in one go.
const RULES_MAX: usize = 64;

/// The priority that the kernel would choose in a fresh namespace. Named, the same rule is not added twice.
const RULE_PRIORITY: u32 = 32765;

/// The routing table of ambient mode, and the place of its rule: before that of a sidecar.
const AMBIENT_TABLE: u32 = 100;
const AMBIENT_PRIORITY: u32 = 32764;

fn add(step: RouteStep) -> io::Result<()> {
    let message = match step {
        RouteStep::MarkRule { family, mark, mask, table, priority } => {
            let mut message = rule(family, mark, mask, table);
            message.attributes.push(RuleAttribute::Priority(priority));
            RouteNetlinkMessage::NewRule(message)
        }
        RouteStep::LocalRoute { family, table } => RouteNetlinkMessage::NewRoute(route(family, table)?),
        RouteStep::PassthroughAddress => RouteNetlinkMessage::NewAddress(address()?),
    };
    request(message, NLM_F_CREATE | NLM_F_EXCL)
}

fn remove(step: RouteStep) -> io::Result<()> {
    let message = match step {
        RouteStep::MarkRule { family, mark, mask, table, .. } => {
            RouteNetlinkMessage::DelRule(rule(family, mark, mask, table))
        }
        RouteStep::LocalRoute { family, table } => RouteNetlinkMessage::DelRoute(route(family, table)?),
        RouteStep::PassthroughAddress => RouteNetlinkMessage::DelAddress(address()?),
    };
    request(message, 0)
}

fn loopback_index() -> io::Result<u32> {
    Ok(if_nametoindex("lo")?)
}

fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn rule(family: Family, mark: u32, mask: Option<u32>, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = address_family(family);
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![RuleAttribute::FwMark(mark), RuleAttribute::Table(table)];
    message.attributes.extend(mask.map(RuleAttribute::FwMask));
    message
}

fn route(family: Family, table: u32) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Host;
    message.header.kind = RouteType::Local;
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(loopback_index()?)];
    Ok(message)
}

fn address() -> io::Result<AddressMessage> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = 128;
    message.header.index = loopback_index()?;
    message.attributes =
        vec![AddressAttribute::Local(PASSTHROUGH.into()), AddressAttribute::Address(PASSTHROUGH.into())];
    Ok(message)
}

/// Sends a request to the kernel and waits for its answer.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        other => Err(io::Error::other(format!("unexpected answer of the kernel: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{InboundPorts, InterceptionMode};

    #[test]
    fn routes_are_needed_for_tproxy_and_the_address_for_ipv6() {
        let mut config =
            CaptureConfig { inbound_ports: InboundPorts::AllExcept(Vec::new()), ..CaptureConfig::default() };
        assert!(sidecar_routes(&config).is_empty());
        config.interception_mode = InterceptionMode::Tproxy;
        config.ipv6 = true;
        let lines: Vec<_> = sidecar_routes(&config).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "ip -6 addr add ::6/128 dev lo",
                "ip -4 rule add fwmark 1337 lookup 133 pref 32765",
                "ip -6 rule add fwmark 1337 lookup 133 pref 32765",
                "ip -4 route add local default dev lo table 133",
                "ip -6 route add local default dev lo table 133",
            ]
        );
        config.inbound_ports = InboundPorts::None;
        assert_eq!(sidecar_routes(&config), [RouteStep::PassthroughAddress]);
    }
}
