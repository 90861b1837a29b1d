//! Requests between services: rates, failures and latencies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::exposition::{Row, rows};

/// Rates are taken over this time. Proxies bring their histograms up to date every five seconds.
const WINDOW: Duration = Duration::from_secs(10);

/// Traffic of the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Services by name, each of its versions on its own.
    pub services: Vec<ServiceTraffic>,
    /// Calls between services.
    pub calls: Vec<Call>,
}

/// What a version of a service was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTraffic {
    /// Service.
    pub service: String,
    /// Version; empty if no proxy of the service tells.
    pub version: String,
    /// Requests in a second, or connections if it is `tcp`.
    pub rate: f64,
    /// What of the requests was answered without an error, from 0 to 1; nothing without requests.
    pub success: Option<f64>,
    /// Median latency in milliseconds.
    pub p50: Option<f64>,
    /// 99th percentile of latency in milliseconds.
    pub p99: Option<f64>,
    /// What of the traffic came over mutual TLS, from 0 to 1; nothing if nobody tells.
    pub mutual_tls: Option<f64>,
    /// `http`, `grpc` or `tcp`.
    pub protocol: String,
}

/// Traffic from one service to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The calling service.
    pub from: String,
    /// The called service.
    pub to: String,
    /// Requests or connections in a second.
    pub rate: f64,
    /// What of the requests was answered without an error, from 0 to 1.
    pub success: Option<f64>,
}

impl Traffic {
    /// Adds services that nobody asked lately: they are there all the same.
    pub(crate) fn add_idle(&mut self, known: &[ServiceTraffic]) {
        let is_new = |service: &&ServiceTraffic| {
            let is_same = |other: &ServiceTraffic| {
                (&other.service, &other.version) == (&service.service, &service.version)
            };
            !self.services.iter().any(is_same)
        };
        let idle: Vec<ServiceTraffic> = known.iter().filter(is_new).cloned().collect();
        self.services.extend(idle);
        self.services
            .sort_by(|one, other| (&one.service, &one.version).cmp(&(&other.service, &other.version)));
    }
}

/// The services that certificates stand for, by `NAMESPACE/sa/ACCOUNT`.
pub(crate) type Identities = BTreeMap<String, String>;

/// Values of one scrape of all proxies, by what they count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(BTreeMap<Key, f64>);

/// What a value counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Which proxy tells.
    proxy: String,
    measure: Measure,
    is_source: bool,
    from: String,
    to: String,
    version: String,
    protocol: String,
    /// For a request, whether it failed; for a bucket, its upper bound.
    detail: String,
    mutual_tls: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Measure {
    Requests,
    Bucket,
    Connections,
}

impl Sample {
    /// Adds what a proxy exposes.
    pub(crate) fn add(&mut self, proxy: &str, text: &str, identities: &Identities) {
        for row in rows(text, "istio_") {
            let measure = match row.name {
                "istio_requests_total" => Measure::Requests,
                "istio_request_duration_milliseconds_bucket" => Measure::Bucket,
                "istio_tcp_connections_opened_total" => Measure::Connections,
                _ => continue,
            };
            *self.0.entry(key(proxy, measure, &row, identities)).or_default() += row.value;
        }
    }
}

fn key(proxy: &str, measure: Measure, row: &Row<'_>, identities: &Identities) -> Key {
    let known = |label: &str| match row.label(label) {
        "unknown" => String::new(),
        value => value.to_owned(),
    };
    let failed = |code: &str| code.starts_with(['4', '5']) || code == "0";
    let name = match row.label("destination_service_name") {
        // The client's proxy does not know the service of a TCP connection; the server's proxy does.
        "unknown" => "",
        name => name,
    };
    // Names of services in the mesh are short; of others the whole host is the name.
    let to = match known("destination_canonical_service") {
        _ if row.label("reporter") == "source" && !name.is_empty() => {
            name.split(".svc.").next().unwrap_or(name).to_owned()
        }
        canonical if canonical.is_empty() => name.to_owned(),
        canonical => canonical,
    };
    let grpc_failed = !matches!(row.label("grpc_response_status"), "" | "0");
    Key {
        proxy: proxy.to_owned(),
        measure,
        is_source: row.label("reporter") == "source",
        from: match known("source_canonical_service") {
            // The server's proxy knows only the certificate of a TCP client.
            from if from.is_empty() => caller(&known("source_principal"), identities),
            from => from,
        },
        to,
        version: known("destination_version"),
        protocol: if measure == Measure::Connections {
            "tcp".to_owned()
        } else {
            row.label("request_protocol").to_owned()
        },
        detail: match measure {
            Measure::Requests if failed(row.label("response_code")) || grpc_failed => "failed".to_owned(),
            Measure::Requests | Measure::Connections => String::new(),
            Measure::Bucket => row.label("le").to_owned(),
        },
        mutual_tls: row.label("connection_security_policy").to_owned(),
    }
}

/// The service behind a certificate: the one that the mesh file gives the account to, otherwise the account.
fn caller(principal: &str, identities: &Identities) -> String {
    let identity = principal.split_once("/ns/").map_or("", |(_, identity)| identity);
    let account = || principal.rsplit('/').next().unwrap_or_default().to_owned();
    identities.get(identity).cloned().unwrap_or_else(account)
}

/// The scrapes of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    samples: VecDeque<(Instant, Sample)>,
}

impl Counters {
    /// Adds a scrape, and forgets those that are too old.
    pub(crate) fn push(&mut self, at: Instant, sample: Sample) {
        self.samples.push_back((at, sample));
        while self.samples.len() > 2
            && self.samples.get(1).is_some_and(|(second, _)| at.duration_since(*second) >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Traffic between the oldest scrape and the newest.
    pub(crate) fn traffic(&self) -> Traffic {
        let (Some((from, old)), Some((to, new))) = (self.samples.front(), self.samples.back()) else {
            return Traffic::default();
        };
        let seconds = to.duration_since(*from).as_secs_f64();
        if seconds <= 0.0 {
            return Traffic::default();
        }
        let changed: Vec<(&Key, f64)> = new
            .0
            .iter()
            .map(|(key, value)| (key, value - old.0.get(key).copied().unwrap_or(0.0)))
            .filter(|(_, change)| *change > 0.0)
            .collect();
        Traffic { services: services(&changed, seconds), calls: calls(&changed, seconds) }
    }
}

/// What adds up for one line of the table.
#[derive(Default)]
struct Sum {
    requests: f64,
    failed: f64,
    connections: f64,
    mutual_tls: f64,
    plain: f64,
    buckets: BTreeMap<u64, f64>,
    protocol: String,
}

impl Sum {
    fn add(&mut self, key: &Key, change: f64) {
        match key.measure {
            Measure::Requests => {
                self.requests += change;
                if !key.detail.is_empty() {
                    self.failed += change;
                }
            }
            Measure::Connections => self.connections += change,
            Measure::Bucket => {
                // Bounds are sorted as numbers; microseconds keep fractions of milliseconds.
                let bound = key.detail.parse::<f64>().map_or(u64::MAX, |bound| {
                    if bound.is_finite() { (bound * 1000.0) as u64 } else { u64::MAX }
                });
                *self.buckets.entry(bound).or_default() += change;
                return;
            }
        }
        if !key.is_source {
            let counted = if key.mutual_tls == "mutual_tls" { &mut self.mutual_tls } else { &mut self.plain };
            *counted += change;
        }
        key.protocol.clone_into(&mut self.protocol);
    }

    /// The time within which this part of the answers was given, in milliseconds.
    fn quantile(&self, part: f64) -> Option<f64> {
        let total = *self.buckets.get(&u64::MAX)?;
        let mut below = (0_u64, 0.0);
        for (&bound, &count) in &self.buckets {
            if count >= part * total && total > 0.0 {
                if bound == u64::MAX {
                    return Some(below.0 as f64 / 1000.0);
                }
                // Like Prometheus: values of a bucket are taken to be spread evenly.
                let inside = (part * total - below.1) / (count - below.1).max(f64::MIN_POSITIVE);
                return Some((below.0 as f64 + (bound - below.0) as f64 * inside) / 1000.0);
            }
            below = (bound, count);
        }
        None
    }

    fn success(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| 1.0 - self.failed / self.requests)
    }

    fn into_service(self, service: String, version: String, seconds: f64) -> ServiceTraffic {
        let judged = self.mutual_tls + self.plain;
        ServiceTraffic {
            service,
            version,
            rate: (self.requests + self.connections) / seconds,
            success: self.success(),
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            mutual_tls: (judged > 0.0).then(|| self.mutual_tls / judged),
            protocol: self.protocol,
        }
    }
}

/// Services as their own proxies count them. What never reaches them, such as an injected fault or a call to the outside, is
/// counted by the callers.
fn services(changed: &[(&Key, f64)], seconds: f64) -> Vec<ServiceTraffic> {
    let mut sums: BTreeMap<(String, String), Sum> = BTreeMap::new();
    let told = told_by_servers(changed);
    for (key, change) in changed {
        let is_counted_there = told.contains(key.to.as_str());
        let never_arrived = key.is_source
            && key.version.is_empty()
            && !key.detail.is_empty()
            && key.measure == Measure::Requests;
        if !key.is_source || !is_counted_there || never_arrived {
            sums.entry((key.to.clone(), key.version.clone())).or_default().add(key, *change);
        }
    }
    sums.into_iter()
        .filter(|((to, _), _)| !to.is_empty())
        .map(|((to, version), sum)| sum.into_service(to, version, seconds))
        .collect()
}

/// The services whose own proxies count what they are asked.
fn told_by_servers<'a>(changed: &[(&'a Key, f64)]) -> BTreeSet<&'a str> {
    changed.iter().filter(|(key, _)| !key.is_source).map(|(key, _)| key.to.as_str()).collect()
}

/// Calls as callers count them; TCP connections as servers do, if they are in the mesh: callers do not always know the service.
fn calls(changed: &[(&Key, f64)], seconds: f64) -> Vec<Call> {
    let mut sums: BTreeMap<(String, String), Sum> = BTreeMap::new();
    let told = told_by_servers(changed);
    let counts = |key: &Key| match key.measure {
        Measure::Requests => key.is_source,
        Measure::Connections => !key.is_source || (!key.to.is_empty() && !told.contains(key.to.as_str())),
        Measure::Bucket => false,
    };
    for (key, change) in changed.iter().filter(|(key, _)| counts(key)) {
        sums.entry((key.from.clone(), key.to.clone())).or_default().add(key, *change);
    }
    let call = |((from, to), sum): ((String, String), Sum)| {
        let success = sum.success();
        Call { from, to, rate: (sum.requests + sum.connections) / seconds, success }
    };
    sums.into_iter().map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(reporter: &str, from: &str, to: &str, version: &str, code: &str, value: u32) -> String {
        let policy = if reporter == "source" { "unknown" } else { "mutual_tls" };
        format!(
            "istio_requests_total{{reporter=\"{reporter}\",source_canonical_service=\"{from}\",\
             destination_service_name=\"{to}\",destination_canonical_service=\"{to}\",destination_version=\"{version}\",\
             request_protocol=\"http\",response_code=\"{code}\",connection_security_policy=\"{policy}\"}} {value}\n"
        )
    }

    fn buckets(values: &[(&str, u32)]) -> String {
        let bucket = |(bound, value): &(&str, u32)| {
            format!(
                "istio_request_duration_milliseconds_bucket{{reporter=\"destination\",destination_canonical_service=\"reviews\",\
                 destination_version=\"v1\",le=\"{bound}\"}} {value}\n"
            )
        };
        values.iter().map(bucket).collect()
    }

    fn traffic(old: &[(&str, String)], new: &[(&str, String)]) -> Traffic {
        let identities = Identities::from([("shop/sa/buyers".to_owned(), "catalogue".to_owned())]);
        let sample = |texts: &[(&str, String)]| {
            let mut sample = Sample::default();
            texts.iter().for_each(|(proxy, text)| sample.add(proxy, text, &identities));
            sample
        };
        let mut counters = Counters::default();
        let start = Instant::now();
        counters.push(start, sample(old));
        counters.push(start + Duration::from_secs(2), sample(new));
        counters.traffic()
    }

    #[test]
    fn services_are_counted_by_their_own_proxies_with_versions() {
        let source = row("source", "web", "reviews", "v1", "200", 30);
        let destination = row("destination", "web", "reviews", "v1", "200", 30)
            + &row("destination", "web", "reviews", "v1", "503", 10);
        let found = traffic(
            &[("reviews-v1", row("destination", "web", "reviews", "v1", "200", 10))],
            &[("web", source), ("reviews-v1", destination)],
        );
        let [reviews] = found.services.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (reviews.service.as_str(), reviews.version.as_str(), reviews.rate),
            ("reviews", "v1", 15.0)
        );
        assert_eq!((reviews.success, reviews.mutual_tls), (Some(1.0 - 10.0 / 30.0), Some(1.0)));
        assert_eq!(
            found.calls,
            [Call { from: "web".into(), to: "reviews".into(), rate: 15.0, success: Some(1.0) }]
        );
    }

    #[test]
    fn faults_that_never_arrive_count_against_the_service() {
        let source = row("source", "web", "reviews", "unknown", "503", 8)
            + &row("source", "web", "reviews", "v1", "200", 8);
        let destination = row("destination", "web", "reviews", "v1", "200", 8);
        let found = traffic(&[], &[("web", source), ("reviews-v1", destination)]);
        let [aborted, v1] = found.services.as_slice() else { panic!("{found:?}") };
        assert_eq!((aborted.version.as_str(), aborted.success, aborted.rate), ("", Some(0.0), 4.0));
        assert_eq!((v1.version.as_str(), v1.success), ("v1", Some(1.0)));
    }

    #[test]
    fn quantiles_are_read_from_buckets() {
        let found = traffic(
            &[],
            &[(
                "reviews-v1",
                row("destination", "web", "reviews", "v1", "200", 100)
                    + &buckets(&[("1", 0), ("5", 50), ("10", 100), ("+Inf", 100)]),
            )],
        );
        let reviews = &found.services[0];
        assert_eq!((reviews.p50, reviews.p99.map(f64::round)), (Some(5.0), Some(10.0)));
    }

    #[test]
    fn connections_are_counted_where_both_ends_are_known() {
        let source = "istio_tcp_connections_opened_total{reporter=\"source\",source_canonical_service=\"catalogue\",\
                      destination_service_name=\"unknown\"} 4\n";
        let destination = "istio_tcp_connections_opened_total{reporter=\"destination\",source_canonical_service=\"unknown\",\
                           source_principal=\"spiffe://cluster.local/ns/shop/sa/buyers\",\
                           destination_canonical_service=\"inventory\",destination_version=\"v1\",\
                           connection_security_policy=\"mutual_tls\"} 4\n";
        let found = traffic(&[], &[("catalogue", source.to_owned()), ("inventory", destination.to_owned())]);
        let [inventory] = found.services.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (inventory.rate, inventory.mutual_tls, inventory.protocol.as_str()),
            (2.0, Some(1.0), "tcp")
        );
        assert_eq!(
            found.calls,
            [Call { from: "catalogue".into(), to: "inventory".into(), rate: 2.0, success: None }]
        );
    }

    #[test]
    fn service_that_nobody_asks_stays_listed() {
        let known = |service: &str, version: &str| ServiceTraffic {
            service: service.to_owned(),
            version: version.to_owned(),
            ..ServiceTraffic::default()
        };
        let mut found =
            traffic(&[], &[("reviews-v1", row("destination", "web", "reviews", "v1", "200", 30))]);
        found.add_idle(&[known("cart", "v1"), known("reviews", "v1"), known("reviews", "v2")]);
        let rates: Vec<(&str, &str, f64)> = found
            .services
            .iter()
            .map(|service| (service.service.as_str(), service.version.as_str(), service.rate))
            .collect();
        assert_eq!(rates, [("cart", "v1", 0.0), ("reviews", "v1", 15.0), ("reviews", "v2", 0.0)]);
    }

    #[test]
    fn connection_that_both_ends_count_is_one() {
        let row = |reporter: &str| {
            format!(
                "istio_tcp_connections_opened_total{{reporter=\"{reporter}\",source_canonical_service=\"catalogue\",\
                 destination_service_name=\"inventory\",destination_canonical_service=\"inventory\"}} 4\n"
            )
        };
        let found = traffic(&[], &[("catalogue", row("source")), ("inventory", row("destination"))]);
        let [call] = found.calls.as_slice() else { panic!("{found:?}") };
        assert_eq!((call.from.as_str(), call.to.as_str(), call.rate), ("catalogue", "inventory", 2.0));
    }

    #[test]
    fn account_of_no_service_is_named_itself() {
        let identities = Identities::from([("shop/sa/buyers".to_owned(), "catalogue".to_owned())]);
        for (principal, name) in [
            ("spiffe://cluster.local/ns/shop/sa/buyers", "catalogue"),
            ("spiffe://cluster.local/ns/other/sa/buyers", "buyers"),
            ("", ""),
        ] {
            assert_eq!(caller(principal, &identities), name, "{principal}");
        }
    }

    #[test]
    fn counter_that_starts_anew_is_no_traffic() {
        let before = row("destination", "web", "reviews", "v1", "200", 100);
        let after = row("destination", "web", "reviews", "v1", "200", 3);
        assert!(traffic(&[("reviews-v1", before)], &[("reviews-v1", after)]).services.is_empty());
    }
}
