use anyhow::Result;
use tokio::time::sleep;

use crate::figure::Figure;
use crate::stage::{PATIENCE, Stage};

/// Memory with none, a tenth and all of the proxies connected and idle.
///
/// The first tenth has a proxy of every kind, so what all share is there by then; what each further proxy adds is its own.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.fresh().await?;
    let idle = stage.control.memory()?;
    let count = stage.world.fixture.proxies;
    // Those of the namespace that sees little come last.
    let edge = stage.world.fixture.wide_proxies();
    let tenth = (count / 10).clamp(1, edge);
    stage.fleet_mut()?.connect(0..tenth);
    stage.fleet_mut()?.connect(edge..count);
    let few = tenth + count - edge;
    stage.fleet()?.ready(few, PATIENCE).await?;
    sleep(stage.scale.settle).await;
    let with_few = stage.control.memory()?;
    stage.fleet_mut()?.connect(tenth..edge);
    stage.fleet()?.ready(count, PATIENCE).await?;
    sleep(stage.scale.settle).await;
    let with_all = stage.control.memory()?;
    let each = |more: u64, less: u64, proxies: usize| more.saturating_sub(less) / proxies.max(1) as u64;
    Ok(vec![
        Figure::bytes("with no proxy", idle),
        Figure::bytes("with a tenth of the proxies", with_few),
        Figure::bytes("with all proxies", with_all),
        Figure::bytes("each proxy, all it brings divided", each(with_all, idle, count)),
        Figure::bytes("each further proxy", each(with_all, with_few, count - few)),
    ])
}
