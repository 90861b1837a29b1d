//! A server that leaves under load.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::pod::{Pod, Workload};
use crate::world::{SERVER, World, workload_entry};

const SECOND: Workload = Workload { name: "reviews-second", account: "reviews", number: 4 };

/// What the servers listen on is said here and not by their WorkloadEntry, as a terminating pod keeps its listeners after it
/// has left its services.
const LISTENERS: &str = "
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: reviews, namespace: shop}
spec:
  workloadSelector:
    labels: {app: reviews}
  ingress:
  - port: {number: 8080, name: http, protocol: HTTP}
    defaultEndpoint: 127.0.0.1:8080
  egress:
  - hosts: ['*/*']
";

/// One of two servers is taken out of the service and terminated: it drains while the other takes over.
pub(crate) fn no_loss() -> Result<()> {
    let mut world = World::start(LISTENERS, &[], &[])?;
    let namespace = world.network.pod(SECOND.number)?;
    let _application = namespace.serve("second", 8080)?;
    let second = Pod::start(namespace, SECOND, &world.plane, &[])?;
    second.wait_ready()?;
    world.plane.write("second.yaml", &workload_entry(&SECOND))?;
    let traces = "/stats?usedonly&filter=_503|no_cluster|retry|cluster_removed";
    let (server_traces, load) = world.under_load(|| {
        std::thread::sleep(Duration::from_secs(2));
        // What Kubernetes does with a terminating pod: it leaves the service and gets the signal.
        world.plane.remove("reviews.yaml")?;
        world.server.signal("TERM")?;
        std::thread::sleep(Duration::from_secs(1));
        let traces = world.server.admin(traces)?;
        std::thread::sleep(Duration::from_secs(4));
        Ok(traces)
    })?;
    assert_eq!(world.server.wait_end()?, Some(0), "{}", world.server.log());
    let client_traces = world.client.admin(traces)?;
    load.check(1000).with_context(|| format!("client:\n{client_traces}\nserver:\n{server_traces}"))?;
    assert_eq!(world.wait_answer()?.upstream, "second");
    assert_eq!(SERVER.account, SECOND.account);
    Ok(())
}
