//! Meshes on this machine, run by `canopus` as users run them.
//!
//! Needs the part `envoy`, and `canopus`, `canopusd` and `canopus-agent` beside this sample's program; all but those of loopback
//! mode also root, `ip` and the part `iptables`. What cannot run is listed as ignored, with the reason.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod commands;
mod elsewhere;
mod lab;
mod loopback;
mod small;
mod terminal;
mod tour;
mod traces;
mod trouble;
mod view;

use std::process::{Command, ExitCode};

use canopus_parts::Part;
use libtest_mimic::{Arguments, Failed, Trial};

/// A test by name, and what it needs.
type Test = (&'static str, fn() -> anyhow::Result<()>, Needs);

/// What the machine must permit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Network namespaces and packet rules.
    Root,
    /// Nothing beyond the programs.
    Nothing,
}

const TESTS: [Test; 16] = [
    ("tour_of_the_sample_goes_as_it_should", tour::whole, Needs::Root),
    ("tour_goes_as_it_should_without_root", loopback::tour_without_root, Needs::Nothing),
    ("live_view_shows_the_mesh_and_takes_steps", view::on_a_terminal, Needs::Root),
    ("mesh_leaves_nothing_behind", small::leaves_nothing, Needs::Root),
    ("killed_supervisor_leaves_nothing_after_down", small::killed_supervisor, Needs::Root),
    ("commands_tell_and_change_a_mesh_that_runs", commands::of_a_mesh, Needs::Root),
    ("terminal_and_mesh_end_together", commands::terminal_and_mesh_end_together, Needs::Root),
    ("what_init_writes_runs", commands::init, Needs::Root),
    ("one_bad_program_does_not_stop_the_rest", trouble::bad_program, Needs::Root),
    ("port_in_use_is_named_and_tried_again", trouble::port_in_use, Needs::Root),
    ("processes_that_crash_are_started_again", trouble::crashes, Needs::Root),
    ("bad_files_are_named_and_change_nothing", bad_files, Needs::Root),
    ("program_that_others_start_is_part_of_the_mesh", elsewhere::program_of_others, Needs::Root),
    ("unit_for_systemd_is_right", elsewhere::unit_file, Needs::Nothing),
    ("manifests_for_kubernetes_are_valid", elsewhere::kubernetes_manifests, Needs::Nothing),
    ("loopback_mode_serves_with_mutual_tls", loopback::small, Needs::Nothing),
];

fn bad_files() -> anyhow::Result<()> {
    trouble::bad_file()?;
    trouble::bad_object()
}

fn main() -> ExitCode {
    let (missing, forbidden) = (missing(), forbidden());
    let trials = TESTS.map(|(name, test, needs)| {
        let reason = missing.as_ref().or(forbidden.as_ref().filter(|_| needs == Needs::Root));
        if let Some(reason) = reason {
            eprintln!("{name} is ignored: {reason}");
        }
        let body = move || test().map_err(|error| Failed::from(format!("{error:#}")));
        Trial::test(name, body).with_ignored_flag(reason.is_some())
    });
    let mut arguments = Arguments::from_args();
    // A mesh has many processes; two at a time would wait for each other.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// What keeps all tests from running here.
fn missing() -> Option<String> {
    let program =
        ["canopus", "canopusd", "canopus-agent"].into_iter().find(|name| !lab::beside(name).exists());
    if let Some(program) = program {
        return Some(format!("{} is missing; build it first", lab::beside(program).display()));
    }
    canopus_parts::find(Part::Envoy).err().map(|error| error.to_string())
}

/// What keeps tests with network namespaces from running here.
fn forbidden() -> Option<String> {
    if !loopback::is_root().unwrap_or_default() {
        return Some("only root may make network namespaces".to_owned());
    }
    if Command::new("ip").arg("-V").output().is_err() {
        return Some("`ip` (package iproute2) is not on PATH".to_owned());
    }
    canopus_parts::find(Part::Iptables).err().map(|error| error.to_string())
}
