//! The set of addresses of enrolled pods, by which the node's rules know probes.
//!
//! For iptables it is an ipset, which is spoken to over netlink: images need no program for it. For nftables it is a set of
//! the node's table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use canopus_capture::Family;
use canopus_capture::apply::{CommandError, Invocation, Runner as _, System};
use canopus_capture::nftables::AMBIENT_HOST_TABLE as TABLE;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

/// Why the set cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// ipset.
    #[error("ipset {set}: cannot {action}: {source}; probes of the kubelet to enrolled pods would fail")]
    Ipset {
        /// The set.
        set: String,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// nft.
    #[error(transparent)]
    Nft(#[from] CommandError),
}

/// The sets of both families.
pub(super) struct AddressSet {
    names: BTreeMap<Family, String>,
    /// `None` for ipset.
    nft: Option<System>,
}

fn family(address: &IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

impl AddressSet {
    pub(super) fn ipset(names: BTreeMap<Family, String>) -> Self {
        Self { names, nft: None }
    }

    pub(super) fn nftables(names: BTreeMap<Family, String>, system: System) -> Self {
        Self { names, nft: Some(system) }
    }

    /// Puts these addresses in the place of all that are there, in one step; the sets are made if there are none.
    pub(super) fn replace(&self, addresses: &[IpAddr]) -> Result<(), SetError> {
        if let Some(system) = &self.nft {
            let mut input = format!("add table inet {TABLE}\n");
            for (family, name) in &self.names {
                let kind = if *family == Family::V4 { "ipv4_addr" } else { "ipv6_addr" };
                let _ = writeln!(
                    input,
                    "add set inet {TABLE} {name} {{ type {kind} ; }}\nflush set inet {TABLE} {name}"
                );
            }
            self.elements(&mut input, "add", addresses);
            return nft(system, input);
        }
        for (of, name) in &self.names {
            let next = format!("{name}-next");
            let call = |action, result: io::Result<()>| {
                result.map_err(|source| SetError::Ipset { set: name.clone(), action, source })
            };
            call("create it", tolerate(ipset::create(name, *of), &[Errno::EEXIST]))?;
            // A process that was killed may have left one behind.
            call("prepare another", tolerate(ipset::destroy(&next), &[Errno::ENOENT]))?;
            call("prepare another", ipset::create(&next, *of))?;
            for address in addresses.iter().filter(|address| family(address) == *of) {
                call("add an address", tolerate(ipset::add(&next, *address), &[Errno::EEXIST]))?;
            }
            call("swap it", ipset::swap(&next, name))?;
            call("remove what it was", ipset::destroy(&next))?;
        }
        Ok(())
    }

    /// Adds or removes addresses. Those that are there already, or are not, are no error.
    pub(super) fn change(&self, addresses: &[IpAddr], is_in: bool) -> Result<(), SetError> {
        if let Some(system) = &self.nft {
            let mut input = String::new();
            // Removing what is not there would fail; adding what is there does not.
            self.elements(&mut input, "add", addresses);
            if !is_in {
                self.elements(&mut input, "delete", addresses);
            }
            return if input.is_empty() { Ok(()) } else { nft(system, input) };
        }
        for address in addresses {
            let Some(name) = self.names.get(&family(address)) else { continue };
            let (action, result) = if is_in {
                ("add an address", tolerate(ipset::add(name, *address), &[Errno::EEXIST]))
            } else {
                (
                    "remove an address",
                    tolerate(ipset::remove(name, *address), &[Errno::EEXIST, Errno::ENOENT]),
                )
            };
            result.map_err(|source| SetError::Ipset { set: name.clone(), action, source })?;
        }
        Ok(())
    }

    /// Removes the sets. Those of nftables went with their table.
    pub(super) fn destroy(&self) -> Result<(), SetError> {
        if self.nft.is_some() {
            return Ok(());
        }
        for name in self.names.values() {
            let result = tolerate(ipset::destroy(name), &[Errno::ENOENT]);
            result.map_err(|source| SetError::Ipset { set: name.clone(), action: "remove it", source })?;
        }
        Ok(())
    }

    fn elements(&self, input: &mut String, verb: &str, addresses: &[IpAddr]) {
        for address in addresses {
            if let Some(name) = self.names.get(&family(address)) {
                let _ = writeln!(input, "{verb} element inet {TABLE} {name} {{ {address} }}");
            }
        }
    }
}

fn nft(system: &System, input: String) -> Result<(), SetError> {
    system.clone().run(&Invocation { input: Some(input), ..Invocation::new("nft", ["-f", "-"]) })?;
    Ok(())
}

/// Errors of ipset itself have numbers beyond those of the system; `IPSET_ERR_EXIST` is what it says of elements.
const IPSET_ERR_EXIST: i32 = 4103;

fn tolerate(result: io::Result<()>, expected: &[Errno]) -> io::Result<()> {
    match result {
        Err(error)
            if error.raw_os_error().is_some_and(|code| {
                expected.iter().any(|errno| *errno as i32 == code)
                    || (code == IPSET_ERR_EXIST && expected.contains(&Errno::EEXIST))
            }) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The messages of ipset, of which only these few are needed.
mod ipset {
    use super::*;

    const PROTOCOL: u8 = 6;
    const SUBSYSTEM: u16 = 6 << 8;

    const CREATE: u16 = 2;
    const DESTROY: u16 = 3;
    const SWAP: u16 = 6;
    const ADD: u16 = 9;
    const REMOVE: u16 = 10;

    const NESTED: u16 = 0x8000;
    const NETWORK_ORDER: u16 = 0x4000;

    const REQUEST: u16 = 1;
    const ACKNOWLEDGE: u16 = 4;
    const EXCLUSIVE: u16 = 0x200;
    const CREATE_NEW: u16 = 0x400;

    fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }

    fn text(value: &str) -> Vec<u8> {
        [value.as_bytes(), &[0]].concat()
    }

    fn named(set: &str) -> Vec<u8> {
        let mut body = Vec::new();
        attribute(&mut body, 1, &[PROTOCOL]);
        attribute(&mut body, 2, &text(set));
        body
    }

    pub(super) fn create(set: &str, family: Family) -> io::Result<()> {
        let mut body = named(set);
        attribute(&mut body, 3, &text("hash:ip"));
        attribute(&mut body, 4, &[0]);
        let family = if family == Family::V4 { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
        attribute(&mut body, 5, &[family as u8]);
        attribute(&mut body, 7 | NESTED, &[]);
        call(CREATE, CREATE_NEW | EXCLUSIVE, family as u8, &body)
    }

    pub(super) fn destroy(set: &str) -> io::Result<()> {
        call(DESTROY, 0, 0, &named(set))
    }

    pub(super) fn swap(from: &str, to: &str) -> io::Result<()> {
        let mut body = named(from);
        attribute(&mut body, 3, &text(to));
        call(SWAP, 0, 0, &body)
    }

    fn element(command: u16, set: &str, address: IpAddr) -> io::Result<()> {
        let (mut ip, mut data) = (Vec::new(), Vec::new());
        match address {
            IpAddr::V4(address) => attribute(&mut ip, 1 | NETWORK_ORDER, &address.octets()),
            IpAddr::V6(address) => attribute(&mut ip, 2 | NETWORK_ORDER, &address.octets()),
        }
        attribute(&mut data, 1 | NESTED, &ip);
        let mut body = named(set);
        attribute(&mut body, 7 | NESTED, &data);
        let family = if address.is_ipv4() { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
        call(command, EXCLUSIVE, family as u8, &body)
    }

    pub(super) fn add(set: &str, address: IpAddr) -> io::Result<()> {
        element(ADD, set, address)
    }

    pub(super) fn remove(set: &str, address: IpAddr) -> io::Result<()> {
        element(REMOVE, set, address)
    }

    /// Sends a message and reads the kernel's verdict on it.
    fn call(command: u16, flags: u16, family: u8, body: &[u8]) -> io::Result<()> {
        let mut message = vec![0; 16];
        message.extend_from_slice(&[family, 0, 0, 0]);
        message.extend_from_slice(body);
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        message[0..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&(SUBSYSTEM | command).to_ne_bytes());
        message[6..8].copy_from_slice(&(REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.send(&message, 0)?;
        let (answer, _) = socket.recv_from_full()?;
        let code = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
        match code {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::Error::other("an answer without a verdict")),
        }
    }
}
