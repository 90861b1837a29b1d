//! What a mesh tells line by line: when it is ready, what keeps it from that, and what ends later.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use crate::mesh::Mesh;
use crate::snapshot::{UnitState, UnitStatus};

/// The beginnings of the two lines, after the mesh's name, of which one is told once at the start.
const READY: &str = "ready after ";
const NOT_READY: &str = "not ready after ";

/// How long nothing may be on its way before a mesh is said not to become ready.
const STILL: Duration = Duration::from_secs(1);

/// A process that was started so often and has ended so often will not be ready soon.
const TRIES: u32 = 2;

/// How often the mesh is looked at before it is ready, and after.
const STARTING: Duration = Duration::from_millis(20);
const RUNNING: Duration = Duration::from_millis(500);

/// How the start of a mesh went, if this line tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All processes are ready.
    Ready,
    /// Some process is not ready, and will not be soon.
    NotReady,
}

impl Start {
    /// Reads a line that [`run`](super::run) told.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, words) = line.split_once(": ")?;
        if words.starts_with(READY) {
            return Some(Self::Ready);
        }
        words.starts_with(NOT_READY).then_some(Self::NotReady)
    }
}

/// Tells when processes become ready or end, for ever. What keeps the mesh from being ready is told once: when nothing is on its
/// way any more, or after a time.
pub(super) async fn tell_changes(mesh: &Mesh, patience: Duration, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let mut seen: BTreeMap<String, (UnitState, String)> = BTreeMap::new();
    let mut problems: Vec<String> = Vec::new();
    let (mut was_ready, mut gave_up) = (false, false);
    let mut on_its_way = Instant::now();
    loop {
        let (units, current) = (mesh.statuses(), mesh.problems());
        for unit in &units {
            let now = (unit.state, unit.message.clone());
            let before = seen.insert(unit.name.clone(), now.clone());
            if before.as_ref() != Some(&now) && matches!(unit.state, UnitState::Crashed | UnitState::Stopped)
            {
                let words = if unit.message.is_empty() { "ended" } else { &unit.message };
                tell(&format!("{}: {words}", unit.name));
            } else if was_ready
                && before.is_some_and(|before| before.0 != unit.state)
                && unit.state == UnitState::Ready
            {
                tell(&format!("{}: ready again", unit.name));
            }
        }
        for problem in current.iter().filter(|problem| !problems.contains(problem)) {
            tell(problem);
        }
        problems = current;
        if units.iter().any(is_on_its_way) {
            on_its_way = Instant::now();
        }
        let lacking = lacking(&units, &problems);
        if !was_ready && lacking.is_empty() {
            was_ready = true;
            let line = ready_line(mesh);
            tell(&line);
            mesh.tell_service_manager(&line);
        } else if !was_ready
            && !gave_up
            && (on_its_way.elapsed() > STILL || mesh.started.elapsed() > patience)
        {
            gave_up = true;
            let line = not_ready_line(mesh, &lacking);
            tell(&line);
            mesh.tell_service_manager(&line);
        }
        sleep(if was_ready { RUNNING } else { STARTING }).await;
    }
}

/// Whether a process may still become ready by itself. What waits for others does only if one of these may.
fn is_on_its_way(unit: &UnitStatus) -> bool {
    match unit.state {
        UnitState::Starting | UnitState::Crashed => unit.restarts < TRIES,
        UnitState::Waiting | UnitState::Ready | UnitState::Stopped => false,
    }
}

/// What is not ready, and why.
fn lacking(units: &[UnitStatus], problems: &[String]) -> Vec<String> {
    let units = units.iter().filter(|unit| !unit.is_settled()).map(|unit| match unit.state {
        UnitState::Waiting => format!("{} waits for others", unit.name),
        _ if unit.message.is_empty() => format!("{} is not ready", unit.name),
        _ => format!("{}: {}", unit.name, unit.message),
    });
    problems.iter().cloned().chain(units).collect()
}

fn ready_line(mesh: &Mesh) -> String {
    let plan = &mesh.components.plan;
    let proxies = plan.pods.iter().filter(|pod| pod.proxy.is_some()).count();
    let programs = plan.pods.iter().filter(|pod| pod.program.is_some()).count();
    let reach = match mesh.published().as_slice() {
        [] => String::new(),
        published => format!("; {}", published.join(", ")),
    };
    format!(
        "{}: {READY}{} ms: canopusd, {proxies} proxies, {programs} programs{reach}",
        plan.mesh,
        mesh.started.elapsed().as_millis()
    )
}

fn not_ready_line(mesh: &Mesh, lacking: &[String]) -> String {
    let (name, seconds) = (&mesh.components.plan.mesh, mesh.started.elapsed().as_secs());
    format!("{name}: {NOT_READY}{seconds} s, everything else runs: {}", lacking.join("; "))
}

/// Waits until everything runs, and fails with what does not.
pub(super) async fn wait_all_ready(
    mesh: &Mesh,
    patience: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut on_its_way = Instant::now();
    loop {
        let units = mesh.statuses();
        let lacking = lacking(&units, &mesh.problems());
        if lacking.is_empty() {
            tell(&ready_line(mesh));
            return Ok(());
        }
        if units.iter().any(is_on_its_way) {
            on_its_way = Instant::now();
        }
        if on_its_way.elapsed() > STILL || mesh.started.elapsed() > patience {
            bail!("{}", not_ready_line(mesh, &lacking));
        }
        sleep(STARTING).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::UnitKind;

    fn unit(state: UnitState, restarts: u32) -> UnitStatus {
        let (name, message) = ("web".to_owned(), "no such program".to_owned());
        UnitStatus { name, kind: UnitKind::Program, state, pid: None, restarts, message }
    }

    #[test]
    fn program_that_ends_again_and_again_is_not_waited_for() {
        assert!(is_on_its_way(&unit(UnitState::Crashed, 0)));
        assert!(is_on_its_way(&unit(UnitState::Starting, 1)));
        for (state, restarts) in [
            (UnitState::Crashed, 2),
            (UnitState::Starting, 2),
            (UnitState::Waiting, 0),
            (UnitState::Stopped, 0),
        ] {
            assert!(!is_on_its_way(&unit(state, restarts)), "{state:?}");
        }
    }

    #[test]
    fn what_is_not_ready_is_named_with_the_reason() {
        let units = [unit(UnitState::Crashed, 2), unit(UnitState::Ready, 0)];
        assert_eq!(
            lacking(&units, &["port 1 is in use".to_owned()]),
            ["port 1 is in use", "web: no such program"]
        );
    }

    #[test]
    fn only_the_line_of_the_start_tells_how_it_went() {
        assert_eq!(Start::parse("shop: ready after 900 ms: canopusd"), Some(Start::Ready));
        assert_eq!(
            Start::parse("shop: not ready after 3 s, everything else runs: web"),
            Some(Start::NotReady)
        );
        for other in
            ["web: ready again", "web: ended with exit status: 1; its last words: ready after all", ""]
        {
            assert_eq!(Start::parse(other), None, "{other}");
        }
    }
}
