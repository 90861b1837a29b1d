//! A server that leaves under load.

use std::time::Duration;

use anyhow::Result;

use crate::pod::{Pod, Workload};
use crate::world::{SERVER, World, workload_entry};

const SECOND: Workload = Workload { name: "reviews-second", account: "reviews", number: 4 };

/// One of two servers is taken out of the service and terminated: it drains while the other takes over.
pub(crate) fn no_loss() -> Result<()> {
    let mut world = World::start("", &[], &[])?;
    let namespace = world.network.pod(SECOND.number)?;
    let _application = namespace.serve("second", 8080)?;
    let second = Pod::start(namespace, SECOND, &world.plane, &[])?;
    second.wait_ready()?;
    world.plane.write("second.yaml", &workload_entry(&SECOND))?;
    let (code, load) = world.under_load(|| {
        std::thread::sleep(Duration::from_secs(2));
        // What Kubernetes does with a terminating pod: it leaves the service and gets the signal.
        world.plane.remove("reviews.yaml")?;
        world.server.signal("TERM")?;
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    })?;
    let () = code;
    assert_eq!(world.server.wait_end()?, Some(0), "{}", world.server.log());
    load.check(1000)?;
    assert_eq!(world.wait_answer()?.upstream, "second");
    assert_eq!(SERVER.account, SECOND.account);
    Ok(())
}
