//! IP addresses and prefixes.

use std::net::IpAddr;

use canopus_base::net::{IpNet, parse_prefix};

use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::Value;
use crate::text::quoted;

pub(super) const BUILTINS: &[Builtin] = &[
    global("ip", 1..=1, Cost::Read, |_, args| address(&args[0]).map(Value::Ip)),
    global("isIP", 1..=1, Cost::Read, |_, args| Ok(parse_address(text(&args[0])?).is_some().into())),
    global("ip.isCanonical", 1..=1, Cost::ReadAndWrite, is_canonical),
    method("family", 1..=1, Cost::One, |_, args| Ok((if ip(&args[0])?.is_ipv4() { 4 } else { 6 }).into())),
    method("isUnspecified", 1..=1, Cost::One, |_, args| Ok(ip(&args[0])?.is_unspecified().into())),
    method("isLoopback", 1..=1, Cost::One, |_, args| Ok(ip(&args[0])?.is_loopback().into())),
    method("isLinkLocalMulticast", 1..=1, Cost::One, |_, args| {
        Ok(is_link_local_multicast(ip(&args[0])?).into())
    }),
    method("isLinkLocalUnicast", 1..=1, Cost::One, |_, args| Ok(is_link_local_unicast(ip(&args[0])?).into())),
    method("isGlobalUnicast", 1..=1, Cost::One, |_, args| Ok(is_global_unicast(ip(&args[0])?).into())),
    global("cidr", 1..=1, Cost::Read, |_, args| prefix(&args[0]).map(Value::Cidr)),
    global("isCIDR", 1..=1, Cost::Read, |_, args| Ok(parse_prefix(text(&args[0])?).is_ok().into())),
    method("containsIP", 2..=2, Cost::Read, |_, args| {
        Ok(cidr(&args[0])?.contains(&address(&args[1])?).into())
    }),
    method("containsCIDR", 2..=2, Cost::Read, |_, args| {
        Ok(cidr(&args[0])?.contains(&prefix(&args[1])?).into())
    }),
    method("ip", 1..=1, Cost::One, |_, args| Ok(Value::Ip(cidr(&args[0])?.addr()))),
    method("masked", 1..=1, Cost::One, |_, args| Ok(Value::Cidr(cidr(&args[0])?.trunc()))),
    method("prefixLength", 1..=1, Cost::One, |_, args| Ok(i64::from(cidr(&args[0])?.prefix_len()).into())),
];

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str> {
    match value {
        Value::String(text) => Ok(text),
        _ => no_overload(),
    }
}

fn ip(value: &Value<'_>) -> Result<IpAddr> {
    match value {
        Value::Ip(address) => Ok(*address),
        _ => no_overload(),
    }
}

fn cidr(value: &Value<'_>) -> Result<IpNet> {
    match value {
        Value::Cidr(prefix) => Ok(*prefix),
        _ => no_overload(),
    }
}

/// Addresses of IPv4 written as IPv6 are no addresses to Kubernetes.
fn parse_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!is_mapped).then_some(address)
}

/// An address, or a text that is one.
fn address(value: &Value<'_>) -> Result<IpAddr> {
    match value {
        Value::Ip(address) => Ok(*address),
        value => {
            let text = text(value)?;
            let wrong = || {
                EvalError::new(format!(
                    "IP Address {} parse error during conversion from string",
                    quoted(text)
                ))
            };
            parse_address(text).ok_or_else(wrong)
        }
    }
}

/// A prefix, or a text that is one.
fn prefix(value: &Value<'_>) -> Result<IpNet> {
    match value {
        Value::Cidr(prefix) => Ok(*prefix),
        value => {
            let text = text(value)?;
            parse_prefix(text).map_err(|_| {
                EvalError::new(format!(
                    "network address parse error during conversion from string: {}",
                    quoted(text)
                ))
            })
        }
    }
}

fn is_canonical<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let canonical = address(&args[0])?.to_string();
    Ok((canonical == text(&args[0])?).into())
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !is_broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
