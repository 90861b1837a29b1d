use anyhow::Result;
use tokio::time::sleep;

use crate::figure::Figure;
use crate::stage::{PATIENCE, Stage};

/// Memory with none, some and all of the proxies connected and idle.
///
/// The proxies that connect first are one of each workload (a tenth of a uniform fleet), so what proxies share is there by then;
/// what each further one adds is its own.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.fresh().await?;
    let idle = stage.control.memory()?;
    let count = stage.world.fixture.proxies;
    let (first, others) = stage.world.fixture.first_and_others();
    let few = first.len();
    stage.fleet_mut()?.connect(first);
    stage.fleet()?.ready(few, PATIENCE).await?;
    sleep(stage.scale.settle).await;
    let with_few = stage.control.memory()?;
    let mark = stage.mark()?;
    stage.fleet_mut()?.connect(others);
    stage.fleet()?.ready(count, PATIENCE).await?;
    let cpu = stage.since(&mark)?.cpu;
    sleep(stage.scale.settle).await;
    let with_all = stage.control.memory()?;
    let each = |more: u64, less: u64, proxies: usize| more.saturating_sub(less) / proxies.max(1) as u64;
    Ok(vec![
        Figure::bytes("with no proxy", idle),
        Figure::count("proxies that connect first", few as f64),
        Figure::bytes("with those that connect first", with_few),
        Figure::bytes("with all proxies", with_all),
        Figure::bytes("each proxy, all it brings divided", each(with_all, idle, count)),
        Figure::bytes("each further proxy", each(with_all, with_few, count - few)),
        Figure::cpu("processor time, each further proxy", cpu / (count - few).max(1) as u32),
    ])
}
