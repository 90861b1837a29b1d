//! A panic of any task of the agent: it is logged and counted, and the task begins again or the agent drains and ends with an
//! error; and which of the two is known of every task there is.
//!
//! Tasks are made to panic through `tasks::fail_point`, which `canopus-agent` itself is built without. So the agent here is this
//! very test program, started once more with the arguments of an agent: it takes orders from a directory. Envoy is a script.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the variable is between two runs of this program")]

#[path = "support/container.rs"]
mod container;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use canopus_runtime::tasks::fail_point;
use canopus_testkit::Authority;
use container::{Container, ask};
use libtest_mimic::{Arguments, Trial};
use serde_json::json;

/// Names the directory that orders come from.
const ORDERS: &str = "CANOPUS_PANIC_ORDERS";

/// What follows from a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The task begins again.
    Recovers,
    /// The agent ends Envoy, and itself with an error: whoever started it starts it again, whole.
    Ends,
}

use Outcome::{Ends, Recovers};

/// What follows from a panic of each task of the process.
const TASKS: [(&str, Outcome); 14] = [
    ("checks of the application", Recovers),
    ("files that secrets name", Recovers),
    ("mounted certificates", Recovers),
    ("names over TCP", Ends),
    ("names over UDP", Ends),
    ("removal of Wasm modules", Recovers),
    ("revocation lists", Recovers),
    ("roots of the control plane", Recovers),
    ("secrets for Envoy", Ends),
    ("signals", Ends),
    ("status port", Ends),
    ("the workload's certificate", Recovers),
    ("token exchange", Ends),
    ("xDS for Envoy", Ends),
];

fn outcome_of(task: &str) -> Option<Outcome> {
    TASKS.iter().find(|(name, _)| *name == task).map(|(_, outcome)| *outcome)
}

fn main() -> ExitCode {
    if let Some(orders) = std::env::var_os(ORDERS) {
        // Envoy is launched by this program as well, which has no tasks.
        if std::env::args_os().nth(1).is_some_and(|command| command == "proxy") {
            std::thread::spawn(move || obey(Path::new(&orders)));
        }
        return canopus_agent::command::main();
    }
    let tests: [(&str, fn()); 3] = [
        ("every_task_that_is_started_by_name_has_a_row", every_task_has_a_row),
        ("agent_serves_on_after_panics_of_tasks_that_begin_again", recovery),
        ("agent_ends_with_an_error_after_a_panic_of_a_task_it_needs", end),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// Tells again and again which tasks run, and has those panic that are named.
fn obey(orders: &Path) {
    let (told, scratch, wanted) = (orders.join("running"), orders.join("running.new"), orders.join("panic"));
    loop {
        if let Ok(name) = fs::read_to_string(&wanted) {
            fs::remove_file(&wanted).unwrap();
            assert!(fail_point::panic_in(&name) > 0, "{name} does not run");
        }
        fs::write(&scratch, fail_point::running().join("\n")).unwrap();
        fs::rename(&scratch, &told).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The names that tasks are given where they are started.
fn names_in(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names_in(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for start in ["tasks.spawn(", "tasks.supervise(", "tasks.supervise_with("] {
                for (at, _) in text.match_indices(start) {
                    let argument = text[at + start.len()..].trim_start().strip_prefix('"');
                    let name = argument.and_then(|rest| rest.split('"').next());
                    names.extend(name.map(str::to_owned));
                }
            }
        }
    }
}

fn every_task_has_a_row() {
    let mut names = BTreeSet::new();
    names_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    let rows: BTreeSet<String> = TASKS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names, rows, "each task of the agent, and nothing else, has a row in TASKS");
}

/// An agent that takes orders.
struct Agent {
    container: Container,
    orders: PathBuf,
}

impl Agent {
    /// Starts an agent with everything in it that it has a task for.
    fn start(variables: &[(&str, &str)]) -> Self {
        let health = json!({"periodSeconds": 1, "initialDelaySeconds": 0, "exec": {"command": ["true"]}});
        let program = std::env::current_exe().unwrap();
        let mut container = Container::of(
            &program,
            "exec sleep 600",
            &[("terminationDrainDuration", json!("0.1s")), ("readinessProbe", health)],
        );
        container.write(ROOT, &Authority::new().unwrap().root());
        let orders = container.path().join("orders");
        fs::create_dir(&orders).unwrap();
        container.set(ORDERS, orders.to_str().unwrap());
        container.set("ISTIO_META_DNS_CAPTURE", "true");
        container.set("DNS_PROXY_ADDR", "127.0.0.1:0");
        container.set("CANOPUS_STS_TOKEN_URL", "https://127.0.0.1:1/token");
        container.flag(&format!("--stsPort={}", canopus_testkit::free_port().unwrap()));
        for (name, value) in variables {
            container.set(name, value);
        }
        container.start();
        let agent = Self { container, orders };
        agent.container.wait("the status port", || agent.metrics().is_some());
        agent.container.wait("Envoy", || agent.container.log().contains("Envoy command"));
        agent
    }

    /// The tasks that run, each as often as it does.
    fn running(&self) -> BTreeMap<String, usize> {
        let mut running = BTreeMap::new();
        for name in fs::read_to_string(self.orders.join("running")).unwrap_or_default().lines() {
            *running.entry(name.to_owned()).or_default() += 1;
        }
        running
    }

    fn order_panic(&self, name: &str) {
        let scratch = self.orders.join("panic.new");
        fs::write(&scratch, name).unwrap();
        fs::rename(scratch, self.orders.join("panic")).unwrap();
    }

    fn metrics(&self) -> Option<String> {
        let (_, page) = ask(self.container.status(), "GET", "/metrics", "")?;
        String::from_utf8(page).ok()
    }

    /// Has a task panic, and waits until it runs again.
    fn recovers(&self, name: &str) {
        let usual = self.running()[name];
        self.order_panic(name);
        let counted = format!("istio_agent_canopus_task_panics_total{{task=\"{name}\"}} {usual}\n");
        self.container.wait(&format!("{name} to begin again"), || {
            let log = self.container.log();
            self.metrics().is_some_and(|page| page.contains(&counted))
                && self.running().get(name) == Some(&usual)
                && log.contains(&format!("task {name} panicked, beginning again"))
                // The place of a panic is told by its hook.
                && log.contains("fail_point.rs:")
        });
    }
}

const ROOT: &str = "var/run/secrets/istio/root-cert.pem";

fn recovery() {
    let agents = [Agent::start(&[]), Agent::start(&[("FILE_MOUNTED_CERTS", "true")])];
    let mut seen = BTreeSet::new();
    for agent in &agents {
        for (name, outcome) in TASKS {
            agent.container.wait("tasks", || agent.running().contains_key("status port"));
            if agent.running().contains_key(name) {
                seen.insert(name);
                if outcome == Recovers {
                    agent.recovers(name);
                }
            }
        }
        let unknown: Vec<String> =
            agent.running().into_keys().filter(|name| outcome_of(name).is_none()).collect();
        assert_eq!(unknown, [""; 0], "what follows from a panic of these? Give each a row in TASKS");
    }
    let unseen: Vec<&str> = TASKS.iter().map(|(name, _)| *name).filter(|name| !seen.contains(name)).collect();
    assert_eq!(unseen, [""; 0], "no such task runs");

    // A task that has begun again does its work.
    let [agent, _] = agents;
    agent.container.write(ROOT, &Authority::new().unwrap().root());
    agent.container.wait("the new root", || agent.container.log().contains("root-cert.pem changed"));
}

fn end() {
    for (name, _) in TASKS.iter().filter(|(_, outcome)| *outcome == Ends) {
        let mut agent = Agent::start(&[]);
        agent.container.wait(name, || agent.running().contains_key(*name));
        agent.order_panic(name);
        let reason = format!("task {name} panicked, stopping the process");
        agent.container.end().says(1, &[&reason, "Envoy has ended"]);
    }
}
