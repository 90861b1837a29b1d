//! The guided tour: a step writes the YAML that a user would write, or kills a process, and checks what follows.
//!
//! Steps are data (`tour` in the mesh file), so any mesh can have one. What a step has applied is taken back before the next.
//! Times are counted from the moment the file is in place; the time to the last acknowledgement is the control plane's own.

mod expect;
mod load;

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::time::sleep;

use crate::mesh::Mesh;
use crate::mesh_file::Step;
use crate::snapshot::StepState;
use crate::unit::Order;

use load::Load;

/// How long the control plane may take to write down what became of a change.
const LEDGER_PATIENCE: Duration = Duration::from_secs(3);

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
        if let Err(error) = take(mesh, step, tell).await {
            tell(&format!("  FAILED: {error:#}"));
            failed.push(step.name.clone());
        }
        take_back(mesh)?;
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
    take_back(mesh)?;
    mesh.tour.borrow_mut().lines = vec![step.title.clone()];
    let lines = Rc::clone(mesh);
    let mut tell = move |line: &str| lines.tour.borrow_mut().lines.push(line.to_owned());
    let taken = take(mesh, &step, &mut tell).await;
    if let Err(error) = &taken {
        tell(&format!("  FAILED: {error:#}"));
    }
    taken.map(|()| format!("{name}: as expected"))
}

/// Removes what the last step has applied.
pub(crate) fn take_back(mesh: &Mesh) -> Result<()> {
    for entry in fs::read_dir(mesh.components.state.tour_objects())? {
        fs::remove_file(entry?.path())?;
    }
    mesh.tour.borrow_mut().applied.clear();
    Ok(())
}

async fn take(mesh: &Rc<Mesh>, step: &Step, tell: &mut dyn FnMut(&str)) -> Result<()> {
    mark(mesh, step, StepState::Running);
    let taken = carry_out(mesh, step, tell).await;
    mark(mesh, step, if taken.is_ok() { StepState::Passed } else { StepState::Failed });
    taken
}

fn mark(mesh: &Mesh, step: &Step, state: StepState) {
    let mut tour = mesh.tour.borrow_mut();
    tour.steps.iter_mut().filter(|known| known.name == step.name).for_each(|known| known.state = state);
}

async fn carry_out(mesh: &Rc<Mesh>, step: &Step, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let before = expect::Before::note(mesh);
    let load = step.under_load.clone().map(Load::start);
    let revision = last_revision(mesh).await;
    let start = Instant::now();
    if let Some(path) = &step.apply {
        apply(mesh, step, path, tell)?;
    }
    if let Some(name) = &step.kill {
        mesh.order(name, Order::Kill).await?;
        tell(&format!("  $ canopus kill {name}"));
    }
    if step.apply.is_some() {
        tell_acknowledgement(mesh, revision, tell).await;
    }
    let mut outcome = Ok(());
    for expectation in &step.expect {
        match expect::fulfilled(mesh, expectation, &before, start).await {
            Ok(text) => tell(&format!("  {text}")),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    if let Some(load) = load {
        tell(&format!("  {}", load.finish().await?));
    }
    outcome
}

/// Puts the objects of a step where the control plane reads them, in one move.
fn apply(mesh: &Mesh, step: &Step, path: &std::path::Path, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let source = mesh.path(path);
    let text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
    let directory = mesh.components.state.tour_objects();
    let written = directory.join(format!(".{}", step.name));
    fs::write(&written, &text)?;
    tell(&format!("  $ cp {} config/", path.display()));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        tell(&format!("    {line}"));
    }
    mesh.tour.borrow_mut().applied.clone_from(&text);
    fs::rename(&written, directory.join(format!("{}.yaml", step.name)))?;
    Ok(())
}

async fn last_revision(mesh: &Mesh) -> u64 {
    mesh.observer.control_plane().await.pushes.first().map_or(0, |push| push.revision)
}

/// Tells what the control plane's ledger says of the change.
async fn tell_acknowledgement(mesh: &Mesh, since: u64, tell: &mut dyn FnMut(&str)) {
    let asked = Instant::now();
    while asked.elapsed() < LEDGER_PATIENCE {
        let pushes = mesh.observer.control_plane().await.pushes;
        let sent = pushes
            .iter()
            .rev()
            .find(|push| push.revision > since && push.recipients > 0 && !push.objects.is_empty());
        if let Some(push) = sent {
            let (count, objects) = (push.recipients, push.objects.join(", "));
            if let Some(milliseconds) = push.acknowledged {
                tell(&format!(
                    "  {objects}: acknowledged by {count} proxies {milliseconds:.0} ms after the change was seen"
                ));
                return;
            }
            if push.rejected > 0 {
                tell(&format!("  {objects}: rejected by {} of {count} proxies", push.rejected));
                return;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}
