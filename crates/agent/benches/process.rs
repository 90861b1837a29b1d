//! The agent as a process: beside a real Envoy, in a mesh of 1,000 services that a real `canopusd` serves.
//!
//! What is asked of the whole process is measured from outside: memory and processor time by the kernel's books, times by the
//! clock of whoever waits. Needs root (pods are network namespaces), Envoy, iptables, and `canopusd` built beside the agent or
//! in the other profile. Without them it says what is missing and ends. `--agent PATH` measures another agent than the one built beside it.

#![allow(missing_docs, reason = "a bench has no interface")]
#![allow(dead_code, reason = "the pods are shared with tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]

#[path = "../tests/pods/network.rs"]
mod network;
#[path = "../tests/pods/plane.rs"]
mod plane;
#[path = "../tests/pods/pod.rs"]
mod pod;
#[path = "../tests/support/tokens.rs"]
mod tokens;
#[path = "../tests/pods/world.rs"]
mod world;

mod process {
    pub(crate) mod books;
    pub(crate) mod names;
    pub(crate) mod scrape;
    pub(crate) mod start;
    pub(crate) mod streams;
}

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_parts::Part;
use process::books::Books;
use process::{names, scrape, start, streams};
use serde_json::json;
use world::World;

/// Services of the mesh, each with a name, an address and two endpoints.
const SERVICES: usize = 1000;

/// How long nothing happens before memory is read.
const REST: Duration = Duration::from_secs(10);

/// A figure, and what it should be.
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) measured: String,
    pub(crate) budget: &'static str,
}

fn main() {
    if let Some(program) = given_program() {
        println!("measuring {}", program.display());
        let _ = pod::PROGRAM.set(program);
    }
    if let Some(reason) = missing() {
        return println!("the agent's process is not measured: {reason}");
    }
    match measure() {
        Ok(figures) => {
            println!("\n| what | measured | budget |\n|---|---|---|");
            for Figure { what, measured, budget } in figures {
                println!("| {what} | {measured} | {budget} |");
            }
        }
        Err(error) => {
            eprintln!("the agent's process could not be measured: {error:#}");
            std::process::exit(1);
        }
    }
}

/// The agent to measure, `--agent PATH`: as it is released, or another program that takes the flags of `pilot-agent`.
fn given_program() -> Option<PathBuf> {
    let mut arguments = std::env::args_os().skip_while(|argument| argument != "--agent");
    arguments.nth(1).map(PathBuf::from)
}

/// What keeps the bench from running here.
fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root may make network namespaces".to_owned());
    }
    let parts = [Part::Envoy, Part::Iptables];
    let part = parts.into_iter().find_map(|part| canopus_parts::find(part).err());
    part.map(|error| error.to_string()).or_else(|| tokens::canopusd().err().map(|error| error.to_string()))
}

fn measure() -> Result<Vec<Figure>> {
    let mut figures = start::times()?;
    figures.extend(streams::rates()?);
    let config = proxy_config()?;
    let variables =
        [("ISTIO_PROMETHEUS_ANNOTATIONS", scrape::ANNOTATIONS), ("PROXY_CONFIG", config.as_str())];
    let mut world = World::start(&services(), &[], &variables)?;
    let id = world.client.agent_id()?;
    let names = world.client.status("/debug/ndsz")?.ok()?;
    let known = names.matches("service-").count();
    ensure!(known >= SERVICES, "the name table has only {known} of {SERVICES} services");
    std::thread::sleep(REST);
    let rest = Books::read(id)?;
    figures.push(Figure {
        what: "resident memory at rest, 1,000 services",
        measured: format!("{} (of it {} private)", rest.resident(), rest.private()),
        budget: "≤ 8 MB",
    });
    figures.extend(start::readiness(&mut world)?);
    let id = world.client.agent_id()?;
    figures.extend(names::answers(&world.client, id)?);
    figures.extend(scrape::merging(&world.client, id)?);
    std::thread::sleep(REST);
    let after = Books::read(id)?;
    figures.push(Figure {
        what: "resident memory at rest after all of this",
        measured: format!("{} (of it {} private)", after.resident(), after.private()),
        budget: "",
    });
    Ok(figures)
}

/// The proxy configuration of pods without annotations, so that Envoy keeps the statistics it keeps by default.
fn proxy_config() -> Result<String> {
    let config = json!({
        "discoveryAddress": format!("{}:{}", network::NODE, plane::PORT),
        "binaryPath": canopus_parts::find(Part::Envoy)?.join("envoy"),
        "concurrency": 2,
    });
    Ok(config.to_string())
}

/// ServiceEntries as a mesh has them that imports everything.
fn services() -> String {
    let mut text = String::new();
    for number in 0..SERVICES {
        let (high, low) = (number / 250, number % 250);
        let _ = write!(
            text,
            "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: service-{number}, namespace: namespace-{}}}
spec:
  hosts: [service-{number}.namespace-{}.mesh]
  addresses: [10.97.{high}.{low}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {{number: 80, name: http, protocol: HTTP, targetPort: 8080}}
  endpoints:
  - address: 10.98.{high}.{low}
  - address: 10.99.{high}.{low}
---",
            number % 20,
            number % 20,
        );
    }
    text
}
