//! Which addresses a name has: the control plane's name table, made ready for look-ups.
//!
//! A Kubernetes service is known by its full name, `NAME.NAMESPACE`, `NAME.NAMESPACE.svc`, and by `NAME` alone in its own
//! namespace. Names that an application's resolver has lengthened by the first search domain are known as well and answered
//! with a CNAME, so that the resolver does not walk through all its search domains. Both are found at the time of the
//! look-up, not stored: the index has a few names per service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use canopus_base::FastMap;
use canopus_proto::istio::networking::nds::v1::NameTable;

/// The name of Kubernetes' registry in a name table.
const KUBERNETES: &str = "Kubernetes";
/// Most names of a table; more would make the agent larger than the application.
const MAX_NAMES: usize = 2_000_000;

/// What decides which short names mean something.
#[derive(Clone, Debug)]
pub struct NameScope {
    namespace: String,
    /// Domain of the cluster's services, such as `svc.cluster.local`.
    domain: String,
    /// The first search domain, lower case, with a dot before and after it.
    search: Option<String>,
}

impl NameScope {
    /// The scope of a proxy in a namespace and a domain, whose application searches in `search` first.
    pub fn new(namespace: &str, domain: &str, search: Option<&String>) -> Self {
        let domain = domain
            .strip_prefix(namespace)
            .and_then(|rest| rest.strip_prefix('.'))
            .unwrap_or(domain)
            .to_owned();
        let search = search.map(|search| format!(".{}.", search.trim_matches('.').to_lowercase()));
        let search = search.filter(|search| search.len() > 2);
        Self { namespace: namespace.to_owned(), domain, search }
    }
}

/// The addresses of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4.
    pub v4: Box<[Ipv4Addr]>,
    /// IPv6.
    pub v6: Box<[Ipv6Addr]>,
}

/// What a look-up finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The name that the one asked for is an alias of.
    pub alias_of: Option<&'a str>,
    /// The addresses, possibly of one family alone.
    pub addresses: &'a Addresses,
}

/// The names of a table.
#[derive(Debug, Default)]
pub struct NameIndex {
    /// By lower-case name with the dot at its end.
    names: FastMap<Box<str>, u32>,
    /// By what follows `*.`.
    wildcards: FastMap<Box<str>, u32>,
    addresses: Vec<Addresses>,
    search: Option<String>,
}

impl NameIndex {
    /// Indexes a table.
    pub fn new(table: NameTable, scope: &NameScope) -> Result<Self, String> {
        if table.table.len() > MAX_NAMES {
            return Err(format!(
                "name table: {} names are too many; the limit is {MAX_NAMES}",
                table.table.len()
            ));
        }
        let mut index = Self { search: scope.search.clone(), ..Self::default() };
        let mut alternatives: Vec<(String, u32)> = Vec::new();
        for (host, info) in table.table {
            let addresses = parse_addresses(&info.ips);
            if addresses.v4.is_empty() && addresses.v6.is_empty() {
                continue;
            }
            let number = u32::try_from(index.addresses.len()).unwrap_or(u32::MAX);
            let is_kubernetes = info.registry == KUBERNETES;
            if is_kubernetes && host.ends_with('.') {
                continue;
            }
            index.addresses.push(addresses);
            let is_local = is_kubernetes && !scope.domain.is_empty() && host.ends_with(&scope.domain);
            if is_local {
                let (name, namespace) = (&info.shortname, &info.namespace);
                let first = scope.domain.split('.').next().unwrap_or_default();
                alternatives.push((format!("{name}.{namespace}."), number));
                alternatives.push((format!("{name}.{namespace}.{first}."), number));
                if *namespace == scope.namespace {
                    alternatives.push((format!("{name}."), number));
                }
                #[expect(deprecated, reason = "older control planes send them")]
                alternatives.extend(info.alt_hosts.iter().map(|host| (format!("{host}."), number)));
            }
            index.insert(&if host.ends_with('.') { host } else { host + "." }, number);
        }
        // A name that stands in the table counts more than one that is derived from another.
        for (name, number) in alternatives {
            index.insert(&name, number);
        }
        index.names.shrink_to_fit();
        index.wildcards.shrink_to_fit();
        index.addresses.shrink_to_fit();
        Ok(index)
    }

    fn insert(&mut self, name: &str, number: u32) {
        let name = name.to_lowercase();
        match name.strip_prefix("*.") {
            Some(rest) => self.wildcards.entry(rest.into()).or_insert(number),
            None => self.names.entry(name.into()).or_insert(number),
        };
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len() + self.wildcards.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks a name up, which is lower case and ends with a dot. The most specific of several wildcards counts.
    pub fn find<'a>(&'a self, name: &'a str) -> Option<Found<'a>> {
        let plain = self.search.as_deref().and_then(|search| name.strip_suffix(search.get(1..)?));
        // `cart.` remains of `cart.shop.svc.cluster.local.`; what still ends so was never searched for.
        let plain = plain.filter(|plain| {
            plain.ends_with('.') && !self.search.as_deref().is_some_and(|search| plain.ends_with(search))
        });
        if let Some(number) = self.names.get(name) {
            return self.found(*number, None);
        }
        if let Some((plain, number)) = plain.and_then(|plain| Some((plain, self.names.get(plain)?))) {
            return self.found(*number, Some(plain));
        }
        if self.wildcards.is_empty() {
            return None;
        }
        for (position, _) in name.match_indices('.') {
            let rest = name.get(position + 1..)?;
            if rest.is_empty() {
                break;
            }
            if let Some(number) = self.wildcards.get(rest) {
                return self.found(*number, None);
            }
            let shorter = plain.and_then(|plain| Some((plain, plain.get(position + 1..)?)));
            if let Some((plain, rest)) = shorter.filter(|(_, rest)| !rest.is_empty())
                && let Some(number) = self.wildcards.get(rest)
            {
                return self.found(*number, Some(plain));
            }
        }
        None
    }

    fn found<'a>(&'a self, number: u32, alias_of: Option<&'a str>) -> Option<Found<'a>> {
        let addresses = self.addresses.get(usize::try_from(number).ok()?)?;
        Some(Found { alias_of, addresses })
    }
}

/// Splits addresses by family. What is none is left out.
fn parse_addresses(texts: &[String]) -> Addresses {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for text in texts {
        match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(address)) => v4.push(address),
            Ok(IpAddr::V6(address)) => v6.push(address),
            Err(_) => {}
        }
    }
    Addresses { v4: v4.into(), v6: v6.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_proto::istio::networking::nds::v1::name_table::NameInfo;
    use proptest::prelude::*;

    fn entry(host: &str, ips: &[&str], kubernetes: bool) -> (String, NameInfo) {
        let mut labels = host.split('.').map(str::to_owned);
        let info = NameInfo {
            ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
            registry: if kubernetes { KUBERNETES } else { "External" }.to_owned(),
            shortname: labels.next().unwrap_or_default(),
            namespace: labels.next().unwrap_or_default(),
            ..Default::default()
        };
        (host.to_owned(), info)
    }

    fn index() -> NameIndex {
        let table = NameTable {
            table: [
                entry("cart.shop.svc.cluster.local", &["10.0.0.1"], true),
                entry("pay.bank.svc.cluster.local", &["10.0.0.2", "fd00::2"], true),
                entry("far.shop.svc.other.cluster", &["10.0.0.3"], true),
                entry("api.example.com", &["240.240.0.1"], false),
                entry("*.wild.example", &["240.240.0.2"], false),
                entry("*.deep.wild.example", &["240.240.0.3"], false),
                entry("cart.shop", &["240.240.0.4"], false),
                entry("broken.example", &["nowhere"], false),
            ]
            .into(),
        };
        let search = "shop.svc.cluster.local".to_owned();
        NameIndex::new(table, &NameScope::new("shop", "shop.svc.cluster.local", Some(&search))).unwrap()
    }

    #[test]
    fn names_are_found_in_all_their_forms() {
        let index = index();
        let find = |name: &str| {
            index.find(name).map(|found| {
                let address = found.addresses.v4.first().map(ToString::to_string).unwrap_or_default();
                format!("{} {address}", found.alias_of.unwrap_or("-"))
            })
        };
        for (name, expected) in [
            ("cart.shop.svc.cluster.local.", Some("- 10.0.0.1")),
            ("cart.shop.svc.", Some("- 10.0.0.1")),
            ("cart.", Some("- 10.0.0.1")),
            // What the table says of a name counts more than what another name implies.
            ("cart.shop.", Some("- 240.240.0.4")),
            ("pay.bank.", Some("- 10.0.0.2")),
            ("pay.bank.svc.", Some("- 10.0.0.2")),
            ("pay.", None),
            ("far.shop.svc.other.cluster.", Some("- 10.0.0.3")),
            ("far.shop.", None),
            ("api.example.com.", Some("- 240.240.0.1")),
            ("api.example.com.shop.svc.cluster.local.", Some("api.example.com. 240.240.0.1")),
            ("pay.bank.shop.svc.cluster.local.", Some("pay.bank. 10.0.0.2")),
            ("api.example.com.svc.cluster.local.", None),
            ("cart.shop.svc.cluster.local.shop.svc.cluster.local.", None),
            ("a.wild.example.", Some("- 240.240.0.2")),
            ("a.b.wild.example.", Some("- 240.240.0.2")),
            ("a.deep.wild.example.", Some("- 240.240.0.3")),
            ("wild.example.", None),
            ("a.wild.example.shop.svc.cluster.local.", Some("a.wild.example. 240.240.0.2")),
            ("broken.example.", None),
            (".", None),
            ("", None),
            ("shop.svc.cluster.local.", None),
        ] {
            assert_eq!(find(name).as_deref(), expected, "{name}");
        }
        assert_eq!(&*index.find("pay.bank.").unwrap().addresses.v6, ["fd00::2".parse::<Ipv6Addr>().unwrap()]);
    }

    proptest! {
        #[test]
        fn any_name_is_looked_up_without_harm(name in ".{0,60}") {
            let _ = index().find(&name.to_lowercase());
        }

        #[test]
        fn every_name_below_a_wildcard_is_found(label in "[a-z0-9-]{1,20}(\\.[a-z0-9-]{1,20}){0,3}") {
            let index = index();
            let name = format!("{label}.wild.example.");
            prop_assert!(index.find(&name).is_some());
        }
    }
}
