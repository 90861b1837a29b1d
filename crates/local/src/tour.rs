//! The guided tour: a step writes the YAML that a user would write, or kills a process, and checks what follows.
//!
//! Steps are data (`tour` in the mesh file), so any mesh can have one. What a step has applied is taken back before the next.
//! Before it, what the step is to break is seen to work. Times are counted from the moment the file is in place; the time to the
//! last acknowledgement is the control plane's own.

mod certificates;
mod expect;
mod load;
mod plain;

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::time::sleep;

use crate::mesh::Mesh;
use crate::mesh_file::Step;
use crate::snapshot::{Push, StepState};
use crate::unit::Order;

use load::Load;

/// How long the control plane may take to write down what became of a change.
const LEDGER_PATIENCE: Duration = Duration::from_secs(10);

/// Where the words of a step go.
struct Narration<'a> {
    tell: &'a mut dyn FnMut(&str),
    /// Whether the objects of the step are told too; the view has a panel of its own for them.
    with_objects: bool,
}

impl Narration<'_> {
    fn tell(&mut self, line: &str) {
        (self.tell)(line);
    }
}

/// Takes every step, and fails if something that was expected did not happen.
pub(crate) async fn take_all(mesh: &Rc<Mesh>, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let steps = mesh.file.tour.clone();
    if steps.is_empty() {
        bail!("the mesh file has no tour");
    }
    let mut failed = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        tell("");
        tell(&format!("[{}/{}] {}", number + 1, steps.len(), step.title));
        let mut narration = Narration { tell: &mut *tell, with_objects: true };
        if let Err(error) = take(mesh, step, &mut narration).await {
            tell(&format!("  FAILED: {error:#}"));
            failed.push(step.name.clone());
        }
        take_back(mesh).await?;
    }
    tell("");
    if !failed.is_empty() {
        bail!("{} of {} steps failed: {}", failed.len(), steps.len(), failed.join(", "));
    }
    tell(&format!("All {} steps went as they should.", steps.len()));
    Ok(())
}

/// Takes one step; what it tells is part of snapshots.
pub(crate) async fn take_named(mesh: &Rc<Mesh>, name: &str) -> Result<String> {
    let step = mesh.file.tour.iter().find(|step| step.name == name).cloned();
    let Some(step) = step else { bail!("the tour has no step {name:?}") };
    if mesh.tour.borrow().steps.iter().any(|step| step.state == StepState::Running) {
        bail!("another step is under way");
    }
    mesh.tour.borrow_mut().lines = vec![step.title.clone()];
    // The next key may come while the step before is taken back.
    mark(mesh, &step, StepState::Running);
    if let Err(error) = take_back(mesh).await {
        mark(mesh, &step, StepState::Failed);
        return Err(error);
    }
    let lines = Rc::clone(mesh);
    let mut tell = move |line: &str| lines.tour.borrow_mut().lines.push(line.to_owned());
    let taken = take(mesh, &step, &mut Narration { tell: &mut tell, with_objects: false }).await;
    if let Err(error) = &taken {
        tell(&format!("  FAILED: {error:#}"));
    }
    taken.map(|()| format!("{name}: as expected"))
}

/// Removes what the last step has applied, and waits until the control plane has seen that: the next step asks what became of
/// its own change.
pub(crate) async fn take_back(mesh: &Mesh) -> Result<()> {
    let applied: Vec<_> = fs::read_dir(mesh.components.state.tour_objects())?.collect::<Result<_, _>>()?;
    let before = mesh.observer.control_plane().await;
    let (revision, was_held) = (before.last_revision(), !before.quarantined.is_empty());
    for entry in &applied {
        fs::remove_file(entry.path())?;
    }
    {
        let mut tour = mesh.tour.borrow_mut();
        tour.command.clear();
        tour.applied.clear();
    }
    if !applied.is_empty() && was_held {
        // No proxy had the configuration, so none is sent anything when it goes.
        released(mesh).await;
    } else if !applied.is_empty() {
        // What the next step expects is waited for in any case.
        let _ = outcome(mesh, revision, |_| true).await;
    }
    Ok(())
}

async fn take(mesh: &Rc<Mesh>, step: &Step, narration: &mut Narration<'_>) -> Result<()> {
    mark(mesh, step, StepState::Running);
    let taken = carry_out(mesh, step, narration).await;
    mark(mesh, step, if taken.is_ok() { StepState::Passed } else { StepState::Failed });
    taken
}

fn mark(mesh: &Mesh, step: &Step, state: StepState) {
    let mut tour = mesh.tour.borrow_mut();
    tour.steps.iter_mut().filter(|known| known.name == step.name).for_each(|known| known.state = state);
}

async fn carry_out(mesh: &Rc<Mesh>, step: &Step, narration: &mut Narration<'_>) -> Result<()> {
    let before = expect::Before::note(mesh, step).await?;
    let load = step.under_load.clone().map(Load::start);
    let revision = mesh.observer.control_plane().await.last_revision();
    let start = Instant::now();
    if let Some(path) = &step.apply {
        apply(mesh, step, path, narration)?;
    }
    if let Some(name) = &step.kill {
        mesh.order(name, Order::Kill).await?;
        let command = format!("$ canopus kill {name}");
        narration.tell(&format!("  {command}"));
        mesh.tour.borrow_mut().command = command;
    }
    let mut outcome = match step.apply {
        Some(_) => tell_outcome(mesh, revision, narration).await,
        None => Ok(()),
    };
    for expectation in &step.expect {
        if outcome.is_ok() {
            outcome = expect::fulfilled(mesh, expectation, &before, start)
                .await
                .map(|text| narration.tell(&format!("  {text}")));
        }
    }
    if let Some(load) = load {
        let load = load.finish().await;
        outcome = outcome.and(load.map(|text| narration.tell(&format!("  {text}"))));
    }
    outcome
}

/// Puts the objects of a step where the control plane reads them, in one move.
fn apply(mesh: &Mesh, step: &Step, path: &Path, narration: &mut Narration<'_>) -> Result<()> {
    let source = mesh.path(path);
    let text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
    let directory = mesh.components.state.tour_objects();
    let written = directory.join(format!(".{}", step.name));
    fs::write(&written, &text)?;
    let command = format!("$ cp {} config/", path.display());
    narration.tell(&format!("  {command}"));
    if narration.with_objects {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .for_each(|line| narration.tell(&format!("    {line}")));
    }
    let mut tour = mesh.tour.borrow_mut();
    tour.command = command;
    tour.applied.clone_from(&text);
    drop(tour);
    fs::rename(&written, directory.join(format!("{}.yaml", step.name)))?;
    Ok(())
}

/// Waits until nothing is in quarantine any more.
async fn released(mesh: &Mesh) {
    let asked = Instant::now();
    while asked.elapsed() < LEDGER_PATIENCE {
        let control_plane = mesh.observer.control_plane().await;
        if control_plane.answers && control_plane.quarantined.is_empty() {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Tells what became of the change by the control plane's ledger. A change of which it knows no end has failed.
async fn tell_outcome(mesh: &Mesh, since: u64, narration: &mut Narration<'_>) -> Result<()> {
    let push = outcome(mesh, since, |push| push.recipients > 0).await?;
    let (count, objects) = (push.recipients, push.objects.join(", "));
    narration.tell(&match push.acknowledged {
        Some(milliseconds) if push.rejected == 0 => {
            format!(
                "  {objects}: acknowledged by {count} proxies {milliseconds:.0} ms after the change was seen"
            )
        }
        _ => format!("  {objects}: rejected by {} of {count} proxies", push.rejected),
    });
    Ok(())
}

/// The first change of objects since a revision whose end is known: everybody concerned has acknowledged it, or somebody has
/// rejected it.
async fn outcome(mesh: &Mesh, since: u64, is_meant: impl Fn(&Push) -> bool) -> Result<Push> {
    let asked = Instant::now();
    let is_over = |push: &Push| push.recipients == 0 || push.acknowledged.is_some() || push.rejected > 0;
    while asked.elapsed() < LEDGER_PATIENCE {
        let pushes = mesh.observer.control_plane().await.pushes;
        let mut changes =
            pushes.into_iter().rev().filter(|push| push.revision > since && !push.objects.is_empty());
        if let Some(push) = changes.find(&is_meant).filter(is_over) {
            return Ok(push);
        }
        sleep(Duration::from_millis(20)).await;
    }
    bail!(
        "the control plane does not know within {} s that proxies have the change",
        LEDGER_PATIENCE.as_secs()
    )
}
