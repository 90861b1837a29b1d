//! Rules on a real kernel: applied with real iptables (both variants) and nft in network namespaces made for each test,
//! and real connections through them.
//!
//! Needs root, `ip`, and the part `iptables`; without one of them the tests are listed as ignored, with the reason. A
//! test drops the privileges of a process to send as another user, so the binary is its own helper (`child`).
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "tests")]

mod child;
mod lab;
mod rules;
mod traffic;

use std::process::{Command, ExitCode};

use canopus_parts::Part;
use libtest_mimic::{Arguments, Failed, Trial};

use lab::Backend;

/// A test that runs on each packet filter.
type Test = fn(Backend) -> anyhow::Result<()>;

const TESTS: [(&str, Test); 20] = [
    ("rules_are_left_alone_when_they_are_there", rules::left_alone),
    ("cleanup_leaves_nothing", rules::cleanup),
    ("cleanup_removes_rules_of_other_settings", rules::cleanup_of_others),
    ("differing_rules_are_replaced_when_asked", rules::replaced),
    ("refused_run_changes_no_table", rules::refused_whole),
    ("foreign_rules_survive", rules::foreign),
    ("ambient_rules_are_taken_by_the_kernel", rules::ambient),
    ("outbound_connections_reach_the_proxy", traffic::outbound),
    ("exclusions_bypass_the_proxy", traffic::exclusions),
    ("inbound_connections_reach_the_proxy", traffic::inbound),
    ("tproxy_shows_the_clients_address", traffic::tproxy),
    ("tproxy_shows_the_clients_address_in_dual_stack", traffic::tproxy_ipv6),
    ("groups_to_include_leave_others_alone", traffic::owner_groups),
    ("traffic_of_a_virtual_machine_is_outbound", traffic::virtual_machine),
    ("ipv6_is_captured_in_dual_stack", traffic::ipv6),
    ("dns_queries_reach_the_agent", traffic::dns),
    ("ipv6_dns_queries_reach_the_agent", traffic::dns_ipv6),
    ("validation_tells_whether_traffic_is_captured", traffic::validation),
    ("whole_command_works_from_another_namespace", traffic::whole_command),
    ("refusal_is_explained_when_privileges_are_missing", traffic::unprivileged),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "child") {
        return child::main(&arguments[2..]);
    }
    let missing = missing();
    if let Some(reason) = &missing {
        eprintln!("tests on a real kernel are ignored: {reason}");
    }
    let mut trials = vec![trial("legacy_is_used_where_it_has_rules", rules::detection)];
    for backend in Backend::ALL {
        for (name, test) in TESTS {
            trials.push(trial(&format!("{name}_{backend}"), move || test(backend)));
        }
    }
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing.is_some())).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, test: impl FnOnce() -> anyhow::Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))))
}

/// What keeps the tests from running here.
fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root may make network namespaces".to_owned());
    }
    if Command::new("ip").arg("-V").output().is_err() {
        return Some("`ip` (package iproute2) is not on PATH".to_owned());
    }
    canopus_parts::find(Part::Iptables).err().map(|error| error.to_string())
}
