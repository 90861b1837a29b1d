//! Generated resources, each held once.
//!
//! Audiences that differ may still have equal resources. Every resource passes the pool of its family as it is generated:
//! equal ones become one allocation, whoever they were generated for. The pools also count how much of the work was for
//! nothing: `generated ÷ distinct` is 1 where every run of a generator gave bytes that nobody had.
//!
//! A pool holds what somebody uses. What only the pool is left with is dropped when it has doubled.

use std::sync::atomic::{AtomicU64, Ordering};

use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use canopus_proto::resource::Resource;
use parking_lot::Mutex;

/// Below this many resources nothing is swept.
const SMALLEST_SWEEP: usize = 1024;

/// The resources of one family that somebody uses.
pub struct Pool {
    family: &'static str,
    held: Mutex<PooledResource>,
    generated: AtomicU64,
    distinct: AtomicU64,
}

/// Resources by their versions. Different ones of one version have different names, or collide.
#[derive(Default)]
struct PooledResource {
    by_version: FastMap<ContentHash, Vec<Resource>>,
    count: usize,
    /// Size at which what nobody uses is dropped next.
    sweep_at: usize,
}

/// What a pool has counted since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The family of resources.
    pub family: &'static str,
    /// Resources that were generated.
    pub generated: u64,
    /// Resources that differed from all others.
    pub distinct: u64,
    /// Resources in use.
    pub held: usize,
}

/// The pools of families whose resources are many. Secrets are never pooled: they would outlive their use.
static POOLS: [Pool; 5] = [
    Pool::new("clusters"),
    Pool::new("endpoints"),
    Pool::new("listeners"),
    Pool::new("routes"),
    Pool::new("name tables"),
];

pub(crate) static CLUSTERS: &Pool = &POOLS[0];
pub(crate) static ENDPOINTS: &Pool = &POOLS[1];
pub(crate) static LISTENERS: &Pool = &POOLS[2];
pub(crate) static ROUTES: &Pool = &POOLS[3];
pub(crate) static NAME_TABLES: &Pool = &POOLS[4];

/// What the pools of all families have counted.
pub fn counts() -> Vec<Counts> {
    POOLS.iter().map(Pool::counts).collect()
}

impl Pool {
    const fn new(family: &'static str) -> Self {
        Self {
            family,
            held: Mutex::new(PooledResource {
                by_version: FastMap::with_hasher(rustc_hash::FxBuildHasher),
                count: 0,
                sweep_at: SMALLEST_SWEEP,
            }),
            generated: AtomicU64::new(0),
            distinct: AtomicU64::new(0),
        }
    }

    /// The equal resource that somebody uses, else this one.
    pub(crate) fn share(&self, resource: Resource) -> Resource {
        self.generated.fetch_add(1, Ordering::Relaxed);
        let shared = self.held.lock().share(resource);
        shared.unwrap_or_else(|new| {
            self.distinct.fetch_add(1, Ordering::Relaxed);
            new
        })
    }

    fn counts(&self) -> Counts {
        Counts {
            family: self.family,
            generated: self.generated.load(Ordering::Relaxed),
            distinct: self.distinct.load(Ordering::Relaxed),
            held: self.held.lock().count,
        }
    }
}

impl PooledResource {
    /// The equal resource that somebody uses; as an error, the one that nobody used until now.
    fn share(&mut self, new: Resource) -> Result<Resource, Resource> {
        if self.count >= self.sweep_at {
            self.sweep();
        }
        let of_version = self.by_version.entry(new.version).or_default();
        // The hash alone must not decide whose bytes a proxy gets.
        let is_same = |held: &&Resource| **held == new && held.body == new.body;
        if let Some(held) = of_version.iter().find(is_same) {
            // What only the pool has left is generated for somebody again.
            let is_used = !held.body.is_unique();
            return if is_used { Ok(held.clone()) } else { Err(held.clone()) };
        }
        of_version.push(new.clone());
        self.count += 1;
        Err(new)
    }

    fn sweep(&mut self) {
        self.count = 0;
        self.by_version.retain(|_, held| {
            held.retain(|resource| !resource.body.is_unique());
            self.count += held.len();
            !held.is_empty()
        });
        self.sweep_at = SMALLEST_SWEEP.max(self.count * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_resources_are_one_allocation_and_counted_once() {
        let pool = Pool::new("test");
        let first = pool.share(Resource::new("a", vec![1, 2, 3]));
        let second = pool.share(Resource::new("a", vec![1, 2, 3]));
        let other_name = pool.share(Resource::new("b", vec![1, 2, 3]));
        assert_eq!(first.body.as_ptr(), second.body.as_ptr());
        assert_eq!(&*other_name.name, "b");
        let counts = pool.counts();
        assert_eq!((counts.generated, counts.distinct, counts.held), (3, 2, 2));
    }

    #[test]
    fn resources_of_one_hash_and_other_bytes_are_two() {
        let pool = Pool::new("test");
        let victim = pool.share(Resource::new("a", "secret"));
        let forged = pool.share(Resource { body: "forged".into(), ..victim.clone() });
        assert_eq!((&*victim.body, &*forged.body), (&b"secret"[..], &b"forged"[..]));
        assert_eq!(pool.share(Resource::new("a", "secret")).body.as_ptr(), victim.body.as_ptr());
    }

    #[test]
    fn what_nobody_uses_is_dropped_when_the_pool_grows() {
        let pool = Pool::new("test");
        let kept = pool.share(Resource::new("kept", vec![0; 8]));
        for at in 0..10 * SMALLEST_SWEEP {
            pool.share(Resource::new("gone", at.to_le_bytes().to_vec()));
        }
        assert!(pool.counts().held <= 2 * SMALLEST_SWEEP);
        assert_eq!(pool.share(Resource::new("kept", vec![0; 8])).body.as_ptr(), kept.body.as_ptr());
    }
}
