//! Pods on a network made for each test: real `canopusd`, agents, Envoys and iptables, and requests between applications.
//!
//! ```text
//!   client pod                      bridge                      server pod
//!   app ─ iptables ─ Envoy ────── mutual TLS ─────── iptables ─ Envoy ─ app
//!            └ agent ────────────── canopusd ─────────────── agent ┘
//! ```
//!
//! Every pod and the node with the control plane is a network namespace. Needs root, `ip`, `setpriv`, and the parts `envoy`,
//! `iptables` and `dig`; without one of them the tests are listed as ignored, with the reason. One test needs the part `registry`
//! as well, which is built with Go.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod drain;
mod explain;
mod join;
mod modules;
mod names;
mod network;
mod outage;
mod plane;
mod pod;
mod probes;
mod revocation;
mod rotation;
#[path = "../support/tokens.rs"]
mod tokens;
mod traffic;
mod world;

use std::process::{Command, ExitCode};

use canopus_parts::Part;
use libtest_mimic::{Arguments, Failed, Trial};

type Test = fn() -> anyhow::Result<()>;

const TESTS: [(&str, Test); 19] = [
    // It waits for minutes, and the others run meanwhile.
    ("own_root_rotates_under_traffic", rotation::own_root),
    ("captured_request_arrives_with_both_identities", traffic::identities),
    ("strict_workload_refuses_plain_text", traffic::strict),
    ("names_of_service_entries_resolve_through_the_agent", names::service_entries),
    ("probes_reach_the_application_under_capture", probes::under_capture),
    ("draining_loses_no_request", drain::after_a_time),
    ("draining_until_clients_have_left_loses_no_request", drain::until_idle),
    ("draining_by_a_hook_loses_no_request", drain::by_a_hook),
    ("certificates_rotate_under_traffic", rotation::certificates),
    ("roots_rotate_under_traffic", rotation::roots),
    ("revoked_peer_is_refused", revocation::of_a_peer),
    ("join_token_brings_a_workload_into_the_mesh", join::token),
    ("restarted_envoy_serves_under_load_without_a_control_plane", outage::envoy_alone),
    ("restarted_proxy_serves_while_the_control_plane_is_away", outage::restart_delta),
    ("restarted_proxy_serves_in_the_older_variant", outage::restart_sotw),
    ("full_disk_stops_nothing", outage::full_disk),
    ("real_registry_has_the_modules_that_proxies_run", modules::from_registry),
    ("agent_killed_leaves_no_orphan", outage::orphan),
    ("explained_requests_end_as_was_said", explain::agrees_with_envoy),
];

fn main() -> ExitCode {
    let missing = missing();
    if let Some(reason) = &missing {
        eprintln!("tests of pods are ignored: {reason}");
    }
    let trials = TESTS.map(|(name, test)| {
        let body = move || test().map_err(|error| Failed::from(format!("{error:#}")));
        Trial::test(name, body).with_ignored_flag(missing.is_some())
    });
    let mut arguments = Arguments::from_args();
    // Each test runs three Envoys and a control plane; more at a time would wait for each other.
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(2).min(2));
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// What keeps the tests from running here.
fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root may make network namespaces".to_owned());
    }
    for (program, package) in [("ip", "iproute2"), ("setpriv", "util-linux")] {
        if Command::new(program).arg("-V").output().is_err() {
            return Some(format!("`{program}` (package {package}) is not on PATH"));
        }
    }
    let parts = [Part::Envoy, Part::Iptables, Part::Dig];
    parts.into_iter().find_map(|part| canopus_parts::find(part).err()).map(|error| error.to_string())
}
