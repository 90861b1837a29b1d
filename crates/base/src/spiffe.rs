//! Workload identities in SPIFFE form: `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What every SPIFFE URI starts with.
pub const SCHEME: &str = "spiffe://";

/// A workload's identity: its service account, in a namespace, in a trust domain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// The domain whose roots vouch for the identity, such as `cluster.local`.
    pub trust_domain: Box<str>,
    /// The namespace of the service account.
    pub namespace: Box<str>,
    /// The service account.
    pub service_account: Box<str>,
}

/// Why an identity could not be made or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// An identity needs both a namespace and a service account.
    #[error(
        "namespace or service account empty for SPIFFE uri ns={namespace} serviceAccount={service_account}"
    )]
    Incomplete {
        /// The namespace given, perhaps empty.
        namespace: Box<str>,
        /// The service account given, perhaps empty.
        service_account: Box<str>,
    },
    /// The text is not `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`.
    #[error("identity is not a spiffe format")]
    Format,
}

impl Identity {
    /// The identity of a service account.
    ///
    /// Trust domains in the form of an e-mail address have `@` replaced by `.`, as a URI's authority would end there.
    pub fn new(trust_domain: &str, namespace: &str, service_account: &str) -> Result<Self, IdentityError> {
        if namespace.is_empty() || service_account.is_empty() {
            return Err(IdentityError::Incomplete {
                namespace: namespace.into(),
                service_account: service_account.into(),
            });
        }
        Ok(Self {
            trust_domain: trust_domain.replace('@', ".").into(),
            namespace: namespace.into(),
            service_account: service_account.into(),
        })
    }

    /// The same workload as another trust domain names it.
    pub fn with_trust_domain(&self, trust_domain: &str) -> Self {
        Self { trust_domain: trust_domain.into(), ..self.clone() }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trust_domain, namespace, service_account } = self;
        write!(f, "{SCHEME}{trust_domain}/ns/{namespace}/sa/{service_account}")
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let path = uri.strip_prefix(SCHEME).ok_or(IdentityError::Format)?;
        match path.split('/').collect::<Vec<_>>()[..] {
            [trust_domain, "ns", namespace, "sa", service_account] => Ok(Self {
                trust_domain: trust_domain.into(),
                namespace: namespace.into(),
                service_account: service_account.into(),
            }),
            _ => Err(IdentityError::Format),
        }
    }
}

/// The identities, and each of them again in every alias of its trust domain.
///
/// What is not an identity of the usual form (a DNS name, a path of another layout) is kept but has no aliases.
pub fn expand<'a>(
    identities: impl IntoIterator<Item = &'a str>,
    aliases: &[impl AsRef<str>],
) -> BTreeSet<String> {
    let mut expanded = BTreeSet::new();
    for uri in identities {
        expanded.insert(uri.to_owned());
        let Ok(identity) = uri.parse::<Identity>() else {
            continue;
        };
        let renamed = aliases.iter().map(|alias| identity.with_trust_domain(alias.as_ref()).to_string());
        expanded.extend(renamed);
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_survives_text_and_back() {
        let text = "spiffe://td.example/ns/shop.one/sa/cart";
        let identity: Identity = text.parse().unwrap();
        assert_eq!(&*identity.trust_domain, "td.example");
        assert_eq!(&*identity.namespace, "shop.one");
        assert_eq!(&*identity.service_account, "cart");
        assert_eq!(identity.to_string(), text);
    }

    #[test]
    fn text_is_refused_when_a_segment_is_missing_extra_or_misnamed() {
        for text in [
            "td/ns/a/sa/b",
            "spiffe://td/ns/a/sa",
            "spiffe://td/ns/a/sa/b/",
            "spiffe://td/pod/a/sa/b",
            "spiffe://td/ns/a/user/b",
            "",
        ] {
            assert_eq!(text.parse::<Identity>(), Err(IdentityError::Format), "{text}");
        }
    }

    #[test]
    fn identity_is_refused_when_namespace_or_account_is_empty() {
        assert!(Identity::new("td", "", "b").is_err());
        assert!(Identity::new("td", "a", "").is_err());
    }

    #[test]
    fn at_sign_becomes_a_dot_when_the_trust_domain_is_an_address() {
        let identity = Identity::new("project@accounts.example", "a", "b").unwrap();
        assert_eq!(identity.to_string(), "spiffe://project.accounts.example/ns/a/sa/b");
    }

    #[test]
    fn aliases_apply_to_identities_alone() {
        let expanded = expand(["spiffe://td/ns/a/sa/b", "db.example", "spiffe://td/other"], &["old"]);
        let expected = ["db.example", "spiffe://old/ns/a/sa/b", "spiffe://td/ns/a/sa/b", "spiffe://td/other"];
        assert!(expanded.iter().eq(expected.iter()));
    }
}
