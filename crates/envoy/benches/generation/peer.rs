//! What Istio 1.32's own benchmarks take, measured on the machine this project was developed on. Those of endpoints are not
//! here: in that version they generate nothing, unless their push is made a forced one.

use std::collections::BTreeMap;

/// One benchmark of Istio's.
pub(crate) struct Figure {
    pub(crate) seconds: f64,
    pub(crate) kilobytes: f64,
    pub(crate) resources: usize,
}

/// Microseconds, kilobytes and resources of each.
const FIGURES: [(&str, f64, f64, usize); 37] = [
    ("RDS/gateways", 69_100.0, 1138.0, 1001),
    ("RDS/gateways-shared", 149_340.0, 5202.0, 2),
    ("RDS/knative-gateway", 8290.0, 252.0, 2),
    ("RDS/http", 898.9, 41.66, 1),
    ("RDS/auto", 3190.0, 82.03, 101),
    ("RDS/externalname", 268.9, 0.421, 1),
    ("RDS/telemetry-api", 1750.0, 81.15, 2),
    ("RDS/virtualservice", 2680.0, 96.13, 1),
    ("RDS/serviceentry-workloadentry", 1550.0, 81.15, 2),
    ("CDS/gateways", 18_090.0, 536.4, 1003),
    ("CDS/gateways-shared", 20_630.0, 536.4, 1003),
    ("CDS/knative-gateway", 71.1, 1.421, 3),
    ("CDS/http", 3510.0, 99.22, 105),
    ("CDS/tcp", 3550.0, 100.0, 105),
    ("CDS/tls", 3190.0, 100.0, 105),
    ("CDS/auto", 2530.0, 114.9, 105),
    ("CDS/externalname", 79.2, 1.877, 5),
    ("CDS/telemetry-api", 9840.0, 231.6, 411),
    ("CDS/virtualservice", 1570.0, 54.38, 105),
    ("CDS/serviceentry-workloadentry", 10_560.0, 430.7, 411),
    ("CDS/waypoint", 2980.0, 126.4, 203),
    ("LDS/gateways", 23_860.0, 2296.0, 2),
    ("LDS/gateways-shared", 47.9, 4.445, 2),
    ("LDS/knative-gateway", 39.5, 3.997, 2),
    ("LDS/http", 165.0, 14.75, 3),
    ("LDS/tcp", 1080.0, 34.92, 103),
    ("LDS/tls", 959.7, 35.25, 103),
    ("LDS/auto", 2270.0, 253.1, 103),
    ("LDS/strict", 193.7, 17.54, 6),
    ("LDS/disabled", 178.0, 14.57, 6),
    ("LDS/externalname", 193.6, 14.75, 3),
    ("LDS/telemetry-api", 2830.0, 208.8, 6),
    ("LDS/virtualservice", 152.4, 14.75, 3),
    ("LDS/authorizationpolicy", 3110.0, 110.6, 4),
    ("LDS/serviceentry-workloadentry", 2150.0, 50.14, 6),
    ("LDS/waypoint", 10_480.0, 451.9, 3),
    ("NDS/tcp-1000", 1160.0, 53.45, 1),
];

/// Figures by name.
pub(crate) struct Peers(BTreeMap<String, Figure>);

impl Peers {
    /// Figures that were recorded on another day.
    pub(crate) fn recorded() -> Self {
        let named = FIGURES.into_iter().map(|(name, micros, kilobytes, resources)| {
            (name.to_owned(), Figure { seconds: micros / 1e6, kilobytes, resources })
        });
        Self(named.collect())
    }

    /// Figures that `go test -bench` printed.
    pub(crate) fn printed(output: &str) -> Self {
        Self(output.lines().filter_map(parse).collect())
    }

    pub(crate) fn figure(&self, name: &str) -> Option<&Figure> {
        self.0.get(name)
    }
}

/// `BenchmarkRouteGeneration/http-2  205  1043419 ns/op  41.66 kb/msg  1.000 resources/msg`.
fn parse(line: &str) -> Option<(String, Figure)> {
    let mut words = line.strip_prefix("Benchmark")?.split_whitespace();
    let (kind, case) = words.next()?.split_once("Generation/")?;
    let (case, _cores) = case.rsplit_once('-')?;
    let name = match kind {
        "Route" => format!("RDS/{case}"),
        "Cluster" => format!("CDS/{case}"),
        "Listener" => format!("LDS/{case}"),
        "NameTable" => format!("NDS/{case}-1000"),
        "Endpoint" => {
            let (endpoints, services) = case.split_once('/')?;
            format!("EDS/{services}x{endpoints}")
        }
        _ => return None,
    };
    let words: Vec<&str> = words.collect();
    let of = |unit: &str| {
        let at = words.iter().position(|word| *word == unit)?;
        words[at.checked_sub(1)?].parse::<f64>().ok()
    };
    let resources = of("resources/msg")? as usize;
    if resources == 0 {
        return None;
    }
    Some((name, Figure { seconds: of("ns/op")? / 1e9, kilobytes: of("kb/msg")?, resources }))
}
