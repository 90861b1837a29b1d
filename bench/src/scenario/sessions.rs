use anyhow::Result;
use tokio::time::sleep;

use crate::client::{Role, Target};
use crate::figure::Figure;
use crate::fixture::EDGE;
use crate::stage::{PATIENCE, Stage};

/// Proxies at the most.
const MOST: usize = 500;

/// Memory of idle sessions: proxies that are alike in all connect, so that each adds its session and nothing else.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    let plaintext = stage.control.plaintext_target();
    let secure = stage.control.secure_target()?;
    let mut figures = Vec::new();
    for (what, target) in [("plaintext", plaintext), ("TLS", secure)] {
        figures.push(Figure::bytes(format!("each further session, {what}"), each(stage, target).await?));
    }
    Ok(figures)
}

async fn each(stage: &mut Stage<'_>, target: Target) -> Result<u64> {
    let count = stage.world.fixture.proxies.clamp(10, MOST);
    let few = count / 5;
    let roles = (0..count).map(|index| Role::plain(index, EDGE, "idle")).collect();
    stage.fresh_with(roles, target).await?;
    let mut memory = [0; 2];
    for (at, range) in [0..few, few..count].into_iter().enumerate() {
        let connected = range.end;
        stage.fleet_mut()?.connect(range);
        stage.fleet()?.ready(connected, PATIENCE).await?;
        sleep(stage.scale.settle).await;
        memory[at] = stage.control.memory()?;
    }
    Ok(memory[1].saturating_sub(memory[0]) / (count - few) as u64)
}
