//! Istio's log: named scopes with thresholds that can be changed at run time, text or JSON lines, `--log_*` flags.
//!
//! A scope is a tracing target: `tracing::debug!(target: "ads", proxy, "pushed")`. Crates declare their scopes as
//! [`Scope`] constants; the binary registers them and calls [`install`] once.
//!
//! ```
//! use canopus_runtime::log::{Level, LogFlags, Scope, Scopes};
//!
//! let scopes = Scopes::new();
//! scopes.register(&[Scope::new("ads", "Discovery streams")]);
//! LogFlags { log_output_level: "ads:debug".into(), ..Default::default() }.apply(&scopes)?;
//! assert_eq!(scopes.get("ads").unwrap().output_level, Level::Debug);
//! # Ok::<(), canopus_runtime::log::LevelListError>(())
//! ```

use std::io;
use std::panic;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

mod flags;
mod format;
mod layer;
mod level;
mod scopes;
mod sink;

pub use flags::{KlogFlags, LevelListError, LogFlags};
pub use level::{Level, UnknownLevel};
pub use scopes::{ALL_SCOPES, DEFAULT_SCOPE, Scope, ScopeInfo, Scopes, UnknownScope};

use format::Format;
use layer::LogLayer;
use sink::{Sink, Target};

/// How long the last lines may take to be written when the process ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A level list is malformed.
    #[error(transparent)]
    Levels(#[from] LevelListError),
    /// A file of `--log_target` cannot be opened.
    #[error("cannot open log target {target:?}: {source}")]
    Open {
        /// The target as given.
        target: String,
        /// What the system said.
        source: io::Error,
    },
    /// The writer thread did not start.
    #[error("cannot start the log writer: {0}")]
    Thread(io::Error),
    /// The process already has a log.
    #[error("the log is already installed")]
    Installed,
}

/// Keeps the log going; dropping it writes what is still queued.
#[must_use = "dropping the guard ends the log"]
pub struct LogGuard {
    sink: Sink,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.sink.flush(FAREWELL);
    }
}

/// Makes this the log of the process, panics included.
pub fn install(scopes: &Scopes, flags: &LogFlags) -> Result<LogGuard, LogError> {
    let unknown = flags.apply(scopes)?;
    let targets = flags.log_target.iter().map(|name| Target::open(name)).collect::<Result<_, _>>()?;
    let format = if flags.log_as_json { Format::Json } else { Format::Text };
    let sink = Sink::start(targets, format)?;
    let subscriber = subscriber(scopes, sink.clone(), format);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Installed)?;
    panic::set_hook(Box::new(log_panic));
    for scope in unknown {
        tracing::warn!("{scope}: its settings are ignored");
    }
    Ok(LogGuard { sink })
}

fn subscriber(scopes: &Scopes, sink: Sink, format: Format) -> impl Subscriber + Send + Sync + use<> {
    let layer = LogLayer::new(scopes.clone(), sink, format).with_filter(scopes.clone());
    tracing_subscriber::registry().with(layer)
}

fn log_panic(panic: &panic::PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("no message");
    tracing::error!(location, "panic: {message}");
}

#[cfg(test)]
mod tests;
