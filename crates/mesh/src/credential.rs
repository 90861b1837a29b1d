//! Credentials sent to proxies over SDS: which object a resource name refers to, who may read it, and what it contains.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use canopus_api::credential::{CA_SUFFIX, Credential, Home, Source};
use canopus_api::kube::{ConfigMap, Secret};
use canopus_api::{Kind, ObjectKey};
use canopus_base::spiffe::Identity;
use canopus_engine::{Ctx, Input};
use canopus_runtime::flags::PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER;

use crate::audience::GatewayRunner;
use crate::gateway::{ClientCertificate, MergedGateways};
use crate::world::{Origin, object, settings};

/// An engine input: whether a cluster lets a service account list the Secrets of its namespace.
///
/// A missing answer counts as no.
pub struct SecretAccess;

/// A service account of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The cluster it is in.
    pub cluster: Arc<str>,
    /// Namespace of the service account.
    pub namespace: Box<str>,
    /// Name of the service account.
    pub name: Box<str>,
}

impl Input for SecretAccess {
    const NAME: &'static str = "secret_access";
    type Key = Account;
    type Value = bool;
    type Index = ();
}

/// The content of a credential.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// A certificate to present to peers.
    Certificate {
        /// The certificate chain.
        chain: Bytes,
        /// The private key.
        key: Bytes,
        /// The OCSP response to staple.
        staple: Option<Bytes>,
    },
    /// Certificates to verify peers with.
    Roots {
        /// The certificates.
        roots: Bytes,
        /// The certificate revocation list.
        revoked: Option<Bytes>,
    },
}

/// A proxy that requests secrets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretReader {
    /// The cluster the proxy runs in.
    pub cluster: Arc<str>,
    /// The Gateways it runs, with the identity it proved.
    pub gateway: GatewayRunner,
}

impl SecretReader {
    /// The authenticated identity.
    pub fn identity(&self) -> Option<&Identity> {
        self.gateway.identity.as_ref()
    }
}

/// The account to look up in [`SecretAccess`]; `None` if the proxy is not authenticated.
pub fn account(reader: &SecretReader) -> Option<Account> {
    let Identity { namespace, service_account, .. } = reader.identity()?;
    Some(Account {
        cluster: reader.cluster.clone(),
        namespace: namespace.clone(),
        name: service_account.clone(),
    })
}

/// The content of an SDS resource for a proxy. Returns `None` if it does not exist or the proxy may not read it.
pub fn material(ctx: &Ctx<'_>, reader: &SecretReader, resource: &str) -> Option<Material> {
    let identity = reader.identity()?;
    let Ok(Credential::Object { source, namespace, name }) = Credential::parse(resource, &identity.namespace)
    else {
        return None;
    };
    let wants_roots = name.ends_with(CA_SUFFIX);
    let is_allowed = match source {
        // Only CA certificates are read from ConfigMaps, and they are public.
        Source::ConfigMap => true,
        Source::GatewaySecret => {
            ctx.get::<MergedGateways>(&reader.gateway).certificates.contains(resource)
                || ctx.get::<ClientCertificate>(&reader.gateway).as_deref() == Some(resource)
        }
        Source::Secret => namespace == identity.namespace && (wants_roots || may_read_secrets(ctx, reader)),
    };
    if !is_allowed {
        return None;
    }
    let clusters = clusters(ctx, &reader.cluster, source.home());
    let found = |cluster: &Arc<str>| {
        let lookup = Lookup { ctx, cluster, namespace: &namespace };
        match source {
            Source::ConfigMap => lookup.config_map_roots(&name),
            _ if wants_roots => lookup.roots(&name),
            _ => lookup.certificate(&name),
        }
    };
    clusters.iter().find_map(found)
}

/// The content of an image pull Secret, for a proxy in `cluster`. Callers must check that the proxy is authenticated.
pub fn registry_password(ctx: &Ctx<'_>, cluster: &Arc<str>, namespace: &str, name: &str) -> Option<Bytes> {
    let clusters = clusters(ctx, cluster, Home::ProxyCluster);
    let mut found = clusters.iter().filter_map(|cluster| Lookup { ctx, cluster, namespace }.secret(name));
    let secret = found.find(|secret| &*secret.spec.r#type == "kubernetes.io/dockerconfigjson")?;
    present(secret.spec.get(".dockerconfigjson").cloned())
}

fn may_read_secrets(ctx: &Ctx<'_>, reader: &SecretReader) -> bool {
    let Some(account) = account(reader) else { return false };
    let settings = settings(ctx);
    let reads =
        account.cluster == settings.cluster || settings.flags.get(PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER);
    reads && ctx.read::<SecretAccess>(&account).is_some_and(|allowed| *allowed)
}

/// The clusters to search; the first that has the credential wins.
fn clusters(ctx: &Ctx<'_>, own: &Arc<str>, home: Home) -> Vec<Arc<str>> {
    let settings = settings(ctx);
    let reads_own =
        *own != settings.cluster && settings.flags.get(PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER);
    match home {
        Home::ProxyCluster if reads_own => vec![own.clone(), settings.cluster.clone()],
        _ => vec![settings.cluster.clone()],
    }
}

/// A namespace of a cluster in which credentials are looked up.
struct Lookup<'a> {
    ctx: &'a Ctx<'a>,
    cluster: &'a Arc<str>,
    namespace: &'a str,
}

impl Lookup<'_> {
    fn origin(&self, kind: Kind, name: &str) -> Origin {
        Origin::new(self.cluster.clone(), ObjectKey::new(kind, self.namespace, name))
    }

    fn secret(&self, name: &str) -> Option<Arc<Secret>> {
        let secret = object::<Secret>(self.ctx, &self.origin(Kind::Secret, name))?;
        // Secrets of these types never contain TLS credentials.
        let foreign = ["helm.sh/release.v1", "kubernetes.io/service-account-token"];
        (!foreign.contains(&&*secret.spec.r#type)).then_some(secret)
    }

    fn certificate(&self, name: &str) -> Option<Material> {
        let secret = self.secret(name)?;
        let value = |key: &str| present(secret.spec.get(key).cloned());
        if let (Some(chain), Some(key)) = (value("cert"), value("key")) {
            return Some(Material::Certificate { chain, key, staple: None });
        }
        let (chain, key) = (value("tls.crt")?, value("tls.key")?);
        let staple = secret.spec.get("tls.ocsp-staple").cloned();
        Some(Material::Certificate { chain, key, staple })
    }

    /// Root certificates are in a Secret of their own, or in that of the certificate.
    fn roots(&self, name: &str) -> Option<Material> {
        let secret = self.secret(name).or_else(|| self.secret(name.strip_suffix(CA_SUFFIX)?))?;
        roots(|key| secret.spec.get(key).cloned())
    }

    fn config_map_roots(&self, name: &str) -> Option<Material> {
        let name = name.strip_suffix(CA_SUFFIX).unwrap_or(name);
        let map = object::<ConfigMap>(self.ctx, &self.origin(Kind::ConfigMap, name))?;
        roots(|key| map.spec.get(key).map(|text| Bytes::copy_from_slice(text.as_bytes())))
    }
}

fn roots(value: impl Fn(&str) -> Option<Bytes>) -> Option<Material> {
    let keys = [("cacert", "crl"), ("ca.crt", "ca.crl")];
    keys.into_iter().find_map(|(roots, revoked)| {
        Some(Material::Roots { roots: present(value(roots))?, revoked: value(revoked) })
    })
}

fn present(value: Option<Bytes>) -> Option<Bytes> {
    value.filter(|bytes| !bytes.is_empty())
}
