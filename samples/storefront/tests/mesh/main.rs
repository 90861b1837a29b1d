//! Meshes on this machine, run by `canopus` as users run them.
//!
//! Needs root, `ip`, the parts `envoy` and `iptables`, and `canopus`, `canopusd` and `canopus-agent` beside this sample's program;
//! without one of them the tests are listed as ignored, with the reason.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod lab;
mod small;
mod tour;
mod view;

use std::process::{Command, ExitCode};

use canopus_parts::Part;
use libtest_mimic::{Arguments, Failed, Trial};

type Test = fn() -> anyhow::Result<()>;

const TESTS: [(&str, Test); 7] = [
    ("tour_of_the_sample_goes_as_it_should", tour::whole),
    ("live_view_shows_the_mesh_and_takes_steps", view::on_a_terminal),
    ("mesh_leaves_nothing_behind", small::leaves_nothing),
    ("killed_supervisor_leaves_nothing_after_down", small::killed_supervisor),
    ("one_bad_program_does_not_stop_the_rest", small::bad_program),
    ("port_in_use_is_named_and_tried_again", small::port_in_use),
    ("loopback_mode_serves_with_mutual_tls", small::loopback),
];

fn main() -> ExitCode {
    let missing = missing();
    if let Some(reason) = &missing {
        eprintln!("tests of meshes on one machine are ignored: {reason}");
    }
    let trials = TESTS.map(|(name, test)| {
        let body = move || test().map_err(|error| Failed::from(format!("{error:#}")));
        Trial::test(name, body).with_ignored_flag(missing.is_some())
    });
    let mut arguments = Arguments::from_args();
    // A mesh has many processes; two at a time would wait for each other.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// What keeps the tests from running here.
fn missing() -> Option<String> {
    if !Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n") {
        return Some("only root may make network namespaces".to_owned());
    }
    if Command::new("ip").arg("-V").output().is_err() {
        return Some("`ip` (package iproute2) is not on PATH".to_owned());
    }
    if let Some(program) =
        ["canopus", "canopusd", "canopus-agent"].into_iter().find(|name| !lab::beside(name).exists())
    {
        return Some(format!("{} is missing; build it first", lab::beside(program).display()));
    }
    let parts = [Part::Envoy, Part::Iptables];
    parts.into_iter().find_map(|part| canopus_parts::find(part).err()).map(|error| error.to_string())
}
