//! Names of TLS credentials: how a `credentialName` becomes the name of an SDS resource, and where that resource lives.

/// What follows a credential's name in the resource that holds its CA certificate alone.
pub const CA_SUFFIX: &str = "-cacert";

const SECRET: &str = "kubernetes://";
const GATEWAY_SECRET: &str = "kubernetes-gateway://";
const CONFIG_MAP: &str = "configmap://";
/// What a credential is called that is the workload's own certificate.
pub const BUILTIN: &str = "builtin://";
const INVALID: &str = "invalid://";

/// The SDS name under which a proxy finds its own workload certificate.
const OWN_CERTIFICATE: &str = "default";

/// A credential as a proxy asks for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Credential {
    /// An object of a cluster.
    Object {
        /// Which kind of reference, and so in which cluster the object lives.
        source: Source,
        /// The object's namespace.
        namespace: Box<str>,
        /// The object's name.
        name: Box<str>,
    },
    /// A certificate that never validates, for references that are not allowed.
    Invalid,
}

/// The kinds of reference to a credential object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// A Secret in the proxy's own cluster; Istio's Gateways refer to it.
    Secret,
    /// A Secret in the config cluster; Gateway API objects refer to it.
    GatewaySecret,
    /// A ConfigMap with CA certificates in the config cluster.
    ConfigMap,
}

/// The cluster an object is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// The cluster the requesting proxy runs in.
    ProxyCluster,
    /// The cluster configuration is read from.
    ConfigCluster,
}

/// Why a resource name does not name a credential.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialError {
    /// The form needs `namespace/name` and there is only one part.
    #[error("invalid resource name {resource:?}. Expected namespace and name")]
    NoNamespace {
        /// The resource name.
        resource: Box<str>,
    },
    /// The part before the slash is empty.
    #[error("invalid resource name {resource:?}. Expected namespace")]
    EmptyNamespace {
        /// The resource name.
        resource: Box<str>,
    },
    /// The part after the slash is empty.
    #[error("invalid resource name {resource:?}. Expected name")]
    EmptyName {
        /// The resource name.
        resource: Box<str>,
    },
    /// The scheme is not a known one.
    #[error("unknown resource type: {resource}")]
    UnknownType {
        /// The resource name.
        resource: Box<str>,
    },
}

impl Source {
    /// The cluster objects of this kind of reference are read from.
    pub const fn home(self) -> Home {
        match self {
            Self::Secret => Home::ProxyCluster,
            Self::GatewaySecret | Self::ConfigMap => Home::ConfigCluster,
        }
    }

    /// The kind of object referred to.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Secret | Self::GatewaySecret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// The scheme in front of names of this kind, with `://`.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Secret => SECRET,
            Self::GatewaySecret => GATEWAY_SECRET,
            Self::ConfigMap => CONFIG_MAP,
        }
    }
}

impl Credential {
    /// Reads the name of an SDS resource; a `kubernetes://` name without a namespace is in the proxy's own.
    pub fn parse(resource: &str, proxy_namespace: &str) -> Result<Self, CredentialError> {
        if resource.starts_with(INVALID) {
            return Ok(Self::Invalid);
        }
        let schemes = [Source::Secret, Source::ConfigMap, Source::GatewaySecret];
        let found =
            schemes.into_iter().find_map(|source| Some((source, resource.strip_prefix(source.scheme())?)));
        let Some((source, path)) = found else {
            return Err(CredentialError::UnknownType { resource: resource.into() });
        };
        // Parity: whatever follows a second slash is ignored.
        let mut segments = path.split('/');
        let first = segments.next().unwrap_or_default();
        let (namespace, name) = match (segments.next(), source) {
            (Some(name), Source::Secret) => (first, name),
            (None, Source::Secret) => (proxy_namespace, first),
            (second, _) => qualified(resource, first, second)?,
        };
        Ok(Self::Object { source, namespace: namespace.into(), name: name.into() })
    }
}

/// Namespace and name, both required.
fn qualified<'a>(
    resource: &str,
    namespace: &'a str,
    name: Option<&'a str>,
) -> Result<(&'a str, &'a str), CredentialError> {
    let resource = || resource.into();
    match name {
        None => Err(CredentialError::NoNamespace { resource: resource() }),
        Some(_) if namespace.is_empty() => Err(CredentialError::EmptyNamespace { resource: resource() }),
        Some("") => Err(CredentialError::EmptyName { resource: resource() }),
        Some(name) => Ok((namespace, name)),
    }
}

/// The SDS resource for a `credentialName` as users write it.
pub fn resource_name(credential_name: &str) -> String {
    if credential_name.starts_with(BUILTIN) {
        return OWN_CERTIFICATE.to_owned();
    }
    if credential_name.starts_with(INVALID) {
        return INVALID.to_owned();
    }
    let explicit =
        [CONFIG_MAP, SECRET, GATEWAY_SECRET].iter().any(|scheme| credential_name.starts_with(scheme));
    if explicit { credential_name.to_owned() } else { format!("{SECRET}{credential_name}") }
}

/// The SDS resource for a Secret that a Gateway API object refers to.
pub fn gateway_resource_name(namespace: &str, name: &str) -> String {
    if name.starts_with(BUILTIN) { BUILTIN.to_owned() } else { format!("{GATEWAY_SECRET}{namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(source: Source, namespace: &str, name: &str) -> Result<Credential, CredentialError> {
        Ok(Credential::Object { source, namespace: namespace.into(), name: name.into() })
    }

    #[test]
    fn secret_is_in_the_proxys_namespace_when_none_is_given() {
        assert_eq!(Credential::parse("kubernetes://cert", "shop"), object(Source::Secret, "shop", "cert"));
        assert_eq!(
            Credential::parse("kubernetes://infra/cert", "shop"),
            object(Source::Secret, "infra", "cert")
        );
        assert_eq!(Source::Secret.home(), Home::ProxyCluster);
    }

    #[test]
    fn config_cluster_references_need_namespace_and_name() {
        for (scheme, source) in
            [("kubernetes-gateway", Source::GatewaySecret), ("configmap", Source::ConfigMap)]
        {
            let parse = |path: &str| Credential::parse(&format!("{scheme}://{path}"), "shop");
            assert_eq!(parse("infra/cert"), object(source, "infra", "cert"));
            assert!(matches!(parse("cert"), Err(CredentialError::NoNamespace { .. })));
            assert!(matches!(parse("/cert"), Err(CredentialError::EmptyNamespace { .. })));
            assert!(matches!(parse("infra/"), Err(CredentialError::EmptyName { .. })));
            assert_eq!(source.home(), Home::ConfigCluster);
        }
    }

    #[test]
    fn names_of_no_known_scheme_are_refused() {
        for resource in ["cert", "vault://cert", "builtin://"] {
            assert!(matches!(Credential::parse(resource, "shop"), Err(CredentialError::UnknownType { .. })));
        }
    }

    #[test]
    fn invalid_reference_stays_invalid() {
        assert_eq!(resource_name("invalid://a/b"), "invalid://");
        assert_eq!(Credential::parse("invalid://a/b", "shop"), Ok(Credential::Invalid));
    }

    #[test]
    fn plain_name_becomes_a_secret_and_a_scheme_is_kept() {
        assert_eq!(resource_name("cert"), "kubernetes://cert");
        assert_eq!(resource_name("configmap://a/b"), "configmap://a/b");
        assert_eq!(resource_name("builtin://"), "default");
    }

    #[test]
    fn gateway_reference_names_its_namespace_unless_builtin() {
        assert_eq!(gateway_resource_name("infra", "cert"), "kubernetes-gateway://infra/cert");
        assert_eq!(gateway_resource_name("infra", "builtin://x"), "builtin://");
    }
}
