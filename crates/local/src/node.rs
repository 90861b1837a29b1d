//! A thread in the control plane's network namespace, from which the mesh can be reached.
//!
//! A socket belongs to the namespace of the thread that opens it. Tasks that are given to this thread connect to pods, and the
//! rest of the process stays in the machine's namespace. In loopback mode the thread is in no other.

use std::future::Future;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use canopus_capture::apply::in_namespace;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread; it ends with its tasks when this is dropped.
#[derive(Debug)]
pub(crate) struct Node {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Node {
    /// Starts the thread in the namespace of a file, or in the current one.
    pub(crate) fn start(namespace: Option<&Path>) -> Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = std::sync::mpsc::channel();
        let namespace = namespace.map(Path::to_owned);
        let body = move || {
            let failed = ready.clone();
            let entered = in_namespace(namespace.as_deref(), false, move || {
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = ready.send(Err(error.to_string()));
                        return;
                    }
                };
                // The receiver is gone if the process is ending already.
                let _ = ready.send(Ok(runtime.handle().clone()));
                runtime.block_on(async {
                    let _ = stopped.await;
                });
            });
            if let Err(error) = entered {
                let _ = failed.send(Err(error.to_string()));
            }
        };
        thread::Builder::new().name("node".to_owned()).spawn(body).context("cannot start a thread")?;
        let handle = started.recv().context("the thread ended")?.map_err(|error| anyhow!(error))?;
        Ok(Self { handle, _stop: stop })
    }

    /// Does work on the thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        self.handle.spawn(work).await.context("work on the node's thread")
    }

    /// Where tasks of the thread are started.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}
