//! The official report of Gateway API's conformance suite, as a table beside the one that Istio published.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml::parse_one;

/// Where the suite writes its report, in the repository.
pub(crate) const REPORT: &str = "docs/gateway-api-conformance.yaml";

/// The page with the table.
pub(crate) const PAGE: &str = "docs/gateway-api.md";

/// The lines around the table.
const BEGIN: &str =
    "<!-- The table of the official report: `cargo xtask gateway-conformance` writes it. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

/// What Istio published for a profile: tests that passed, of the core and extended, and the extended features it claims.
struct Published {
    profile: &'static str,
    core: u32,
    extended: u32,
    features: &'static [&'static str],
}

/// The report of Istio 1.30.1 for Gateway API 1.5.1 (`conformance/reports/v1.5/istio-istio` in its repository), with features
/// by their names of today.
const ISTIO: [Published; 4] = [
    Published {
        profile: "GATEWAY-HTTP",
        core: 33,
        extended: 38,
        features: &[
            "BackendTLSPolicy",
            "BackendTLSPolicySANValidation",
            "GatewayAddressEmpty",
            "GatewayHTTPListenerIsolation",
            "GatewayInfrastructure",
            "GatewayPort8080",
            "GatewayStaticAddresses",
            "HTTPRoute303RedirectStatusCode",
            "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode",
            "HTTPRouteBackendProtocolH2C",
            "HTTPRouteBackendProtocolWebSocket",
            "HTTPRouteBackendRequestHeaderModification",
            "HTTPRouteBackendTimeout",
            "HTTPRouteCORS",
            "HTTPRouteDestinationPortMatching",
            "HTTPRouteHostRewrite",
            "HTTPRouteMethodMatching",
            "HTTPRouteNamedRouteRule",
            "HTTPRouteParentRefPort",
            "HTTPRoutePathRedirect",
            "HTTPRoutePathRewrite",
            "HTTPRoutePortRedirect",
            "HTTPRouteQueryParamMatching",
            "HTTPRouteRequestMirror",
            "HTTPRouteRequestMultipleMirrors",
            "HTTPRouteRequestPercentageMirror",
            "HTTPRouteRequestTimeout",
            "HTTPRouteResponseHeaderModification",
            "HTTPRouteSchemeRedirect",
        ],
    },
    Published { profile: "GATEWAY-GRPC", core: 13, extended: 3, features: GATEWAY },
    Published {
        profile: "GATEWAY-TLS",
        core: 18,
        extended: 7,
        features: &[
            "GatewayAddressEmpty",
            "GatewayHTTPListenerIsolation",
            "GatewayInfrastructure",
            "GatewayPort8080",
            "GatewayStaticAddresses",
            "TLSRouteModeMixed",
            "TLSRouteModeTerminate",
        ],
    },
    Published {
        profile: "MESH-HTTP",
        core: 7,
        extended: 7,
        features: &[
            "MeshConsumerRoute",
            "MeshHTTPRouteBackendRequestHeaderModification",
            "MeshHTTPRouteNamedRouteRule",
            "MeshHTTPRouteQueryParamMatching",
            "MeshHTTPRouteRedirectPath",
            "MeshHTTPRouteRedirectPort",
            "MeshHTTPRouteRewritePath",
            "MeshHTTPRouteSchemeRedirect",
        ],
    },
];

/// What it claims of all gateways.
const GATEWAY: &[&str] = &[
    "GatewayAddressEmpty",
    "GatewayHTTPListenerIsolation",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayStaticAddresses",
];

/// Writes the table of the repository's report into its page.
pub(crate) fn update(repository: &Path) -> Result<()> {
    let (page, report) = (repository.join(PAGE), repository.join(REPORT));
    let text = fs::read_to_string(&page).context(PAGE)?;
    let report = fs::read_to_string(report).context(REPORT)?;
    fs::write(page, replaced(&text, &report)?).context(PAGE)
}

/// The page with the table of a report in place of the one that it has.
pub(crate) fn replaced(page: &str, report: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("the page has no line where the table begins")?;
    let (_, after) = rest.split_once(END).context("the page has no line where the table ends")?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table(report)?))
}

fn table(report: &str) -> Result<String> {
    let report = parse_one(report, &Limits::default())?;
    let version = text(&report, "/gatewayAPIVersion")?;
    let mut table = format!(
        "Gateway API {}, {} channel. In parentheses: extended features claimed.\n\n\
         | profile | core | extended | Istio 1.30.1, for Gateway API 1.5.1: core | extended |\n|---|---|---|---|---|\n",
        version.trim_start_matches('v'),
        text(&report, "/gatewayAPIChannel")?
    );
    let (mut more, mut unclaimed) = (BTreeSet::new(), Vec::new());
    for profile in report.get("profiles").and_then(Node::as_list).context("the report has no profiles")? {
        let name = text(profile, "/name")?;
        let published = ISTIO.iter().find(|published| published.profile == name);
        let features = names(profile, "/extended/supportedFeatures");
        let (theirs, claimed) = match published {
            Some(Published { core, extended, features, .. }) => {
                (format!("{core} | {extended} ({})", features.len()), *features)
            }
            None => ("not published | not published".to_owned(), &[][..]),
        };
        writeln!(
            table,
            "| {name} | {} | {} | {theirs} |",
            passed(profile, "core"),
            match features.len() {
                0 => "none".to_owned(),
                count => format!("{} ({count})", passed(profile, "extended")),
            }
        )?;
        if published.is_some() {
            more.extend(features.iter().copied().filter(|feature| !claimed.contains(feature)));
        }
        unclaimed.extend(names(profile, "/extended/unsupportedFeatures"));
    }
    let list = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    writeln!(table, "\nClaimed here and not in Istio's report: {}.", list(more.into_iter().collect()))?;
    writeln!(table, "Not claimed: {}.", list(unclaimed))?;
    Ok(table)
}

/// How many tests of a kind passed, and of how many if that is not all of them.
fn passed(profile: &Node, kind: &str) -> String {
    let count = |what: &str| {
        profile.pointer(&format!("/{kind}/statistics/{what}")).and_then(Node::as_i64).unwrap_or(0)
    };
    let (passed, others) = (count("Passed"), count("Failed") + count("Skipped"));
    if others == 0 { passed.to_string() } else { format!("{passed} of {}", passed + others) }
}

fn names<'a>(profile: &'a Node, path: &str) -> Vec<&'a str> {
    let list = profile.pointer(path).and_then(Node::as_list).unwrap_or_default();
    list.iter().filter_map(Node::as_str).collect()
}

fn text<'a>(node: &'a Node, path: &str) -> Result<&'a str> {
    node.pointer(path).and_then(Node::as_str).with_context(|| format!("the report has no {path}"))
}
