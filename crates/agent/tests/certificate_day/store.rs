//! The store that control planes share, in which one of them can crash.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use canopus_identity::store::{Answer, Record, RootStore, Versioned};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// At which write a process crashes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crash {
    /// The crash comes before the write.
    Before(usize),
    /// The crash comes after the write, before the writer hears of it.
    After(usize),
}

/// What is stored, whoever looks at it.
#[derive(Default)]
pub(crate) struct Store {
    stored: Mutex<Option<Versioned>>,
    writes: AtomicUsize,
    crash: Option<Crash>,
}

impl Store {
    pub(crate) fn new(crash: Option<Crash>) -> Arc<Self> {
        Arc::new(Self { crash, ..Self::default() })
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

/// The store as one process sees it.
pub(crate) struct Handle {
    pub(crate) store: Arc<Store>,
    /// Notified when the process crashes here; the call is never answered.
    pub(crate) crashed: Arc<Notify>,
}

impl Handle {
    async fn write<T>(&self, effect: impl FnOnce(&mut Option<Versioned>) -> T) -> T {
        let number = self.store.writes.fetch_add(1, Ordering::Relaxed);
        let crash = self.store.crash;
        if matches!(crash, Some(Crash::Before(write)) if write == number) {
            return self.end().await;
        }
        let answer = effect(&mut self.store.stored.lock());
        if matches!(crash, Some(Crash::After(write)) if write == number) {
            return self.end().await;
        }
        answer
    }

    async fn end<T>(&self) -> T {
        self.crashed.notify_one();
        pending().await
    }
}

impl RootStore for Handle {
    fn load(&self) -> Answer<'_, Option<Versioned>> {
        let stored = self.store.stored.lock().clone();
        Box::pin(async move { Ok(stored) })
    }

    fn create_if_absent<'a>(&'a self, record: &'a Record) -> Answer<'a, Versioned> {
        let first = || Versioned { record: record.clone(), version: "1".to_owned() };
        Box::pin(async move { Ok(self.write(|stored| stored.get_or_insert_with(first).clone()).await) })
    }

    fn compare_and_swap<'a>(&'a self, version: &'a str, record: &'a Record) -> Answer<'a, Option<Versioned>> {
        let swap = move |stored: &mut Option<Versioned>| {
            if stored.as_ref().is_none_or(|stored| stored.version != version) {
                return None;
            }
            let next = (version.parse::<u64>().unwrap() + 1).to_string();
            *stored = Some(Versioned { record: record.clone(), version: next });
            stored.clone()
        };
        Box::pin(async move { Ok(self.write(swap).await) })
    }
}
