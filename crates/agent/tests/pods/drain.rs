//! A server that leaves under load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::http;

use crate::pod::{Pod, Workload, is_alive};
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

/// What Kubernetes does with a terminating pod: it leaves the service and gets the signal.
pub(crate) fn after_a_time() -> Result<()> {
    no_loss(&[], |pod| pod.signal("TERM"))
}

/// The same, with an agent that waits for its clients.
pub(crate) fn until_idle() -> Result<()> {
    let variables = [("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"), ("MINIMUM_DRAIN_DURATION", "3s")];
    no_loss(&variables, |pod| pod.signal("TERM"))?;
    Ok(())
}

/// A hook drains before the signal comes, as with sidecars that are containers of their own.
pub(crate) fn by_a_hook() -> Result<()> {
    no_loss(&[], |pod| {
        let address = SocketAddr::from(([127, 0, 0, 1], 15020));
        let asked = async || http::request(http::Method::POST, address, "/drain").send().await?.ok();
        pod.namespace.run(asked)?;
        std::thread::sleep(Duration::from_secs(3));
        let told = Instant::now();
        pod.signal("TERM")?;
        while is_alive(pod.agent_id()?) {
            ensure!(told.elapsed() < Duration::from_secs(2), "it drains once more:\n{}", pod.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })
}

/// One of two servers is taken out of the service and terminated: it drains while the other takes over.
fn no_loss(variables: &[(&str, &str)], leave: impl FnOnce(&Pod) -> Result<()>) -> Result<()> {
    let mut world = World::start(LISTENERS, &[], variables)?;
    let namespace = world.network.pod(SECOND.number)?;
    let _application = namespace.serve("second", 8080)?;
    let second = Pod::start(namespace, SECOND, &world.plane, &[])?;
    second.wait_ready()?;
    world.plane.write("second.yaml", &workload_entry(&SECOND))?;
    let traces = "/stats?usedonly&filter=_503|no_cluster|retry|cluster_removed";
    let (server_traces, load) = world.under_load(|| {
        std::thread::sleep(Duration::from_secs(2));
        world.plane.remove("reviews.yaml")?;
        let before = world.server.admin(traces)?;
        leave(&world.server)?;
        std::thread::sleep(Duration::from_secs(5));
        Ok(before)
    })?;
    assert_eq!(world.server.wait_end()?, Some(0), "{}", world.server.log());
    let client_traces = world.client.admin(traces)?;
    load.check(1000).with_context(|| format!("client:\n{client_traces}\nserver:\n{server_traces}"))?;
    assert_eq!(world.wait_answer()?.upstream, "second");
    assert_eq!(SERVER.account, SECOND.account);
    Ok(())
}
