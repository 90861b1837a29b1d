//! Trust domains: the mesh's own and its aliases, which are interchangeable in policies.

use canopus_proto::istio::mesh::v1alpha1::MeshConfig;

/// The domain that policies may write instead of the mesh's own.
const LOCAL: &str = "cluster.local";

/// Matches every domain.
const ANY: &str = "*";

/// The number of parts of `domain/ns/namespace/sa/account`.
const PRINCIPAL_PARTS: usize = 5;

/// The mesh's trust domain and its aliases, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomains {
    domains: Vec<String>,
}

impl TrustDomains {
    /// A trust domain and its aliases.
    pub fn new<'a>(own: &'a str, aliases: impl IntoIterator<Item = &'a String>) -> Self {
        let all = std::iter::once(own).chain(aliases.into_iter().map(String::as_str));
        Self { domains: all.map(str::to_owned).collect() }
    }

    /// No domains: principals are not expanded.
    pub fn none() -> Self {
        Self { domains: Vec::new() }
    }

    /// Reads the trust domain and aliases of a mesh config.
    pub fn from_mesh_config(mesh: &MeshConfig) -> Self {
        Self::new(&mesh.trust_domain, &mesh.trust_domain_aliases)
    }

    /// Expands the principals of a policy: each in every interchangeable domain.
    pub fn principals(&self, written: &[String]) -> Vec<String> {
        let mut all = Vec::with_capacity(written.len());
        for principal in written {
            match specific_domain(principal).filter(|domain| self.knows(domain)) {
                Some(domain) => self.add_aliases(&mut all, principal, domain),
                None => all.push(principal.clone()),
            }
        }
        all
    }

    /// Expands the trust domains of a policy to all interchangeable domains.
    pub fn domains(&self, written: &[String]) -> Vec<String> {
        let mut all: Vec<String> = Vec::with_capacity(written.len());
        for domain in written {
            let same = std::slice::from_ref(domain);
            let equivalent = if self.domains.contains(domain) { &self.domains[..] } else { same };
            for domain in equivalent {
                if !all.contains(domain) {
                    all.push(domain.clone());
                }
            }
        }
        all
    }

    fn knows(&self, domain: &str) -> bool {
        let is_known = || domain == LOCAL || self.domains.iter().any(|known| overlap(domain, known));
        !self.domains.is_empty() && is_known()
    }

    /// Adds a principal in every domain. A domain that begins with `*` is kept for the domains it matches, and appears once.
    fn add_aliases(&self, all: &mut Vec<String>, principal: &str, domain: &str) {
        let begin = all.len();
        for known in &self.domains {
            let alias = if has_suffix(known, domain) { None } else { with_domain(principal, known) };
            let alias = alias.unwrap_or_else(|| principal.to_owned());
            if !all[begin..].contains(&alias) {
                all.push(alias);
            }
        }
    }
}

/// Splits a principal after its domain. Returns `None` if it does not have the form `domain/ns/namespace/sa/account`.
fn split(principal: &str) -> Option<(&str, &str)> {
    (principal.split('/').count() == PRINCIPAL_PARTS).then(|| principal.split_once('/')).flatten()
}

/// The domain of a principal, if it is complete.
pub fn principal_domain(principal: &str) -> Option<&str> {
    split(principal).map(|(domain, _)| domain)
}

/// The domain of a principal, unless it is `*`.
pub fn specific_domain(principal: &str) -> Option<&str> {
    principal_domain(principal).filter(|domain| *domain != ANY)
}

/// Replaces the domain of a principal, if it is complete.
pub fn with_domain(principal: &str, domain: &str) -> Option<String> {
    split(principal).map(|(_, rest)| format!("{domain}/{rest}"))
}

/// Whether two domains, each of which may begin or end with `*`, overlap.
pub fn overlap(a: &str, b: &str) -> bool {
    a == b || b == ANY || has_prefix(a, b) || has_prefix(b, a) || has_suffix(a, b) || has_suffix(b, a)
}

fn has_prefix(text: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|prefix| text.starts_with(prefix))
}

fn has_suffix(text: &str, pattern: &str) -> bool {
    pattern.strip_prefix('*').is_some_and(|suffix| text.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn mesh() -> TrustDomains {
        TrustDomains::new("new-td", &strings(&["old-td", "other"]))
    }

    #[test]
    fn principal_of_a_known_domain_is_wanted_in_all_of_them() {
        let all = mesh().principals(&strings(&["old-td/ns/a/sa/b", "cluster.local/ns/a/sa/b"]));
        let each = ["new-td/ns/a/sa/b", "old-td/ns/a/sa/b", "other/ns/a/sa/b"];
        assert_eq!(all, strings(&[each, each].concat()));
    }

    #[test]
    fn principal_stays_as_it_is_when_its_domain_is_unknown_or_not_asked_about() {
        let as_they_are = strings(&["elsewhere/ns/a/sa/b", "*/ns/a/sa/b", "*", "b"]);
        assert_eq!(mesh().principals(&as_they_are), as_they_are);
    }

    #[test]
    fn wildcard_domain_covers_those_it_matches_once() {
        let all = mesh().principals(&strings(&["*-td/ns/a/sa/b"]));
        assert_eq!(all, strings(&["*-td/ns/a/sa/b", "other/ns/a/sa/b"]));
    }

    #[test]
    fn domains_expand_once_to_all_aliases() {
        let all = mesh().domains(&strings(&["old-td", "elsewhere", "other"]));
        assert_eq!(all, strings(&["new-td", "old-td", "other", "elsewhere"]));
    }
}
