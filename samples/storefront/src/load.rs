//! Customers: a steady load on the gateway.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::{MissedTickBehavior, interval};

use crate::client::Service;
use crate::place::service;

/// How often the log says how it goes.
const REPORT: Duration = Duration::from_secs(10);

/// Sends so many requests in a second, for ever. Every fifth customer pays.
pub(crate) async fn send(rate: f64) -> Result<()> {
    ensure!(rate > 0.0 && rate <= 10_000.0, "--rate: use a number above 0, up to 10000");
    let gateway = Service::new("shop.example.com", service("gateway", 8080));
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut answered, mut failed, mut reported) = (0_u64, 0_u64, Instant::now());
    for number in 0_u64.. {
        ticks.tick().await;
        let path = if number % 5 == 4 { "/checkout" } else { "/" };
        match gateway.get(path).await {
            Ok(answer) if answer.status.is_success() => answered += 1,
            Ok(answer) => {
                failed += 1;
                println!("{path}: {}", answer.status);
            }
            Err(error) => {
                failed += 1;
                println!("{path}: {error:#}");
            }
        }
        if reported.elapsed() > REPORT {
            println!("{answered} answered, {failed} failed");
            (answered, failed, reported) = (0, 0, Instant::now());
        }
    }
    Ok(())
}
