//! The rules of pods and of the node, made and removed.
//!
//! Whatever is there is replaced in one step, so that a new version of the agent brings pods new rules without stopping their
//! traffic. Rules are made by programs that wait for the kernel; all of this blocks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use canopus_capture::ambient::{AmbientConfig, PodOverrides};
use canopus_capture::apply::{
    ApplyError, Invocation, NamespaceError, Runner as _, System, Tools, VariantChoice, add_routes,
    ambient_routes, in_namespace, in_open_namespace, remove_routes, replace_iptables,
};
use canopus_capture::iptables::{self, RuleProgram};
use canopus_capture::nftables;
use canopus_capture::{Family, Owner};

use super::address_set::{AddressSet, SetError};

/// Why rules could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The rules.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The set of addresses.
    #[error(transparent)]
    Set(#[from] SetError),
}

impl From<canopus_capture::apply::CommandError> for RulesError {
    fn from(error: canopus_capture::apply::CommandError) -> Self {
        Self::Apply(error.into())
    }
}

impl From<canopus_capture::apply::RouteError> for RulesError {
    fn from(error: canopus_capture::apply::RouteError) -> Self {
        Self::Apply(error.into())
    }
}

/// How rules are made on this node.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What they say.
    pub config: AmbientConfig,
    /// Use nftables.
    pub native_nftables: bool,
    /// Which iptables to use.
    pub variant: VariantChoice,
    /// The directory of iptables and nft; `None` to search `PATH`.
    pub tools: Option<PathBuf>,
    /// The file of the node's network namespace.
    pub host_namespace: PathBuf,
    /// The user the kubelet runs as, for nftables.
    pub kubelet: u32,
}

impl Rules {
    fn system(&self) -> System {
        System::default().with_directory(self.tools.clone())
    }

    fn find_tools(&self, system: &mut System) -> Result<Tools, ApplyError> {
        if self.variant == VariantChoice::Detect
            && let Some(tools) = Tools::for_new_namespace(self.config.ipv6)
        {
            return Ok(tools);
        }
        Tools::detect(system, self.variant, self.config.ipv6)
    }

    fn nft(&self, input: String) -> Result<(), RulesError> {
        self.system().run(&Invocation { input: Some(input), ..Invocation::new("nft", ["-f", "-"]) })?;
        Ok(())
    }

    /// Makes the rules of a pod.
    pub fn capture(&self, pod: &OwnedFd, overrides: &PodOverrides) -> Result<(), RulesError> {
        in_open_namespace(pod.as_fd(), || {
            if self.native_nftables {
                // A table that the new rules do not use must not stay.
                let removed = nftables::ambient_cleanup().to_string();
                self.nft(removed + &nftables::ambient_pod(&self.config, overrides).to_string())?;
            } else {
                let mut system = self.system();
                let tools = self.find_tools(&mut system)?;
                replace_iptables(&mut system, &tools, &iptables::ambient_pod(&self.config, overrides))?;
            }
            Ok(add_routes(&ambient_routes(&self.config))?)
        })?
    }

    /// Removes the rules of a pod.
    pub fn release(&self, pod: &OwnedFd) -> Result<(), RulesError> {
        in_open_namespace(pod.as_fd(), || {
            self.remove_rules()?;
            Ok(remove_routes(&ambient_routes(&self.config))?)
        })?
    }

    fn remove_rules(&self) -> Result<(), RulesError> {
        if self.native_nftables {
            return self.nft(nftables::ambient_cleanup().to_string());
        }
        let mut system = self.system();
        let tools = self.find_tools(&mut system)?;
        replace_iptables(&mut system, &tools, &RuleProgram::default())?;
        Ok(())
    }

    /// Makes the node's rules, with the addresses of the pods that are enrolled already.
    pub fn prepare_host(&self, addresses: &[IpAddr]) -> Result<(), RulesError> {
        in_namespace(Some(&self.host_namespace), false, || {
            let set = self.set();
            set.replace(addresses)?;
            if self.native_nftables {
                return self.nft(nftables::ambient_host(&self.config, &Owner::id(self.kubelet)).to_string());
            }
            let mut system = self.system();
            let tools = self.find_tools(&mut system)?;
            replace_iptables(&mut system, &tools, &iptables::ambient_host(&self.config))?;
            Ok(())
        })?
    }

    /// Removes the node's rules and the set of addresses.
    pub fn release_host(&self) -> Result<(), RulesError> {
        in_namespace(Some(&self.host_namespace), false, || {
            self.remove_rules()?;
            Ok(self.set().destroy()?)
        })?
    }

    /// Lets probes of the node reach these addresses, or not.
    pub fn set_probed(&self, addresses: &[IpAddr], is_probed: bool) -> Result<(), RulesError> {
        in_namespace(Some(&self.host_namespace), false, || Ok(self.set().change(addresses, is_probed)?))?
    }

    fn set(&self) -> AddressSet {
        let families = self.config.families();
        let names = families.iter().map(|&family| (family, canopus_capture::ambient::probe_set(family)));
        let names: BTreeMap<Family, String> = names.collect();
        if self.native_nftables {
            AddressSet::nftables(names, self.system())
        } else {
            AddressSet::ipset(names)
        }
    }
}
