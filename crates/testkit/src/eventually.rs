use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep};

/// The pause after the first failed try; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);

const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Tries `probe` until it succeeds and returns what it found.
///
/// When `patience` runs out, the error names `what` was awaited, how often it was looked for and what the last try said.
pub async fn eventually<T>(
    what: &str,
    patience: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut tries = 0_u32;
    loop {
        tries += 1;
        let error = match probe().await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        if started.elapsed() >= patience {
            return Err(anyhow!(
                "{what}: not so after {:.1} s and {tries} tries; the last one said: {error:#}",
                started.elapsed().as_secs_f64()
            ));
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answer_comes_from_the_first_try_that_succeeds() {
        let mut tries = 0;
        let found = eventually("third time lucky", Duration::from_secs(1), async || {
            tries += 1;
            ensure!(tries == 3, "only try {tries}");
            Ok(tries)
        });
        assert_eq!(found.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_tells_what_was_awaited_and_the_last_reason() {
        let error = eventually("two clusters", Duration::from_secs(2), async || -> Result<()> {
            Err(anyhow!("found 1")).map_err(|error| error.context("asking Envoy"))
        });
        let message = error.await.unwrap_err().to_string();
        assert!(message.starts_with("two clusters: not so after 2."), "{message}");
        assert!(message.ends_with("the last one said: asking Envoy: found 1"), "{message}");
    }
}
