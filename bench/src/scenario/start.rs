use std::time::Instant;

use anyhow::Result;

use crate::figure::Figure;
use crate::stage::{PATIENCE, Stage};

/// A fresh process, and one proxy that waits for it.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    let started = stage.fresh().await?;
    let memory = stage.control.memory()?;
    let asked = Instant::now();
    stage.fleet_mut()?.connect(0..1);
    stage.fleet()?.ready(1, PATIENCE).await?;
    let served = asked.elapsed();
    Ok(vec![
        Figure::time("process start to ready", started.took),
        Figure::cpu("processor time until ready", started.cpu),
        Figure::bytes("memory when ready", memory),
        Figure::time("first proxy, connect to all it asked for", served),
    ])
}
