//! The control plane or the agent is gone.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{eventually, http};

use crate::network::sh;
use crate::pod::{Pod, is_alive};
use crate::world::World;

const OUTAGE: Duration = Duration::from_secs(60);
/// How long an Envoy that was killed may take until it serves again.
const GAP: Duration = Duration::from_secs(15);
/// Bytes that Envoy has received over xDS.
const RECEIVED: &str = "xds-grpc.*upstream_cx_rx_bytes_total$";
/// What changes when Envoy gets a configuration.
const UPDATES: [&str; 4] = [
    "^cluster_manager.cluster_added$",
    "^cluster_manager.cluster_modified$",
    "^listener_manager.listener_added$",
    "^listener_manager.listener_modified$",
];

/// A service more; it changes nothing of the others.
const ANOTHER: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: another, namespace: shop}
spec:
  hosts: [another.shop.mesh]
  addresses: [10.96.0.77]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 80, name: http, protocol: HTTP}
  endpoints:
  - address: 10.78.0.77
";

fn wait_connected(pod: &Pod) -> Result<()> {
    pod.namespace.run(async || {
        eventually("a stream to the control plane", Duration::from_secs(40), async || {
            let address = SocketAddr::from(([127, 0, 0, 1], 15020));
            let metrics = http::get(address, "/metrics").await?.ok()?;
            ensure!(metrics.contains("istio_agent_control_plane_connected 1"), "there is none");
            Ok(())
        })
        .await
    })
}

/// The control plane is killed for a minute and Envoy alone meanwhile: its agent starts it again, and it serves. Of the
/// configuration it had, nothing is sent again afterwards.
pub(crate) fn envoy_alone() -> Result<()> {
    let mut world = World::start("", &[], &[("CANOPUS_ENVOY_RESTARTS", "1")])?;
    let first = world.server.statistic(RECEIVED)?;
    world.plane.kill();
    let killed = Instant::now();
    let (gap, load) = world.under_load(|| {
        std::thread::sleep(Duration::from_secs(5));
        let begin = Instant::now();
        let envoy = world.server.envoy_id()?;
        sh("kill", &["-KILL", &envoy.to_string()])?;
        std::thread::sleep(GAP);
        ensure!(world.server.envoy_id()? != envoy, "Envoy was not started again");
        let end = Instant::now();
        std::thread::sleep(OUTAGE.saturating_sub(killed.elapsed()));
        Ok(begin..end)
    })?;
    load.check_outside(Some(gap), 8000).with_context(|| world.server.log())?;
    let detail = world.server.status("/healthz/ready")?;
    ensure!(detail.status == 200 && detail.body.contains("last good configuration"), "{detail:?}");
    let before = Counts::read(&world.server)?;
    world.plane.restart()?;
    wait_connected(&world.server)?;
    std::thread::sleep(Duration::from_secs(3));
    let after = Counts::read(&world.server)?;
    ensure!(after.updates == before.updates, "{before:?}, then {after:?}");
    let sent_again = after.received - before.received;
    ensure!(sent_again < first / 10, "{sent_again} bytes were sent again, {first} at the start");
    // What is new does arrive, and alone.
    world.plane.write("another.yaml", ANOTHER)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    let now = loop {
        let now = Counts::read(&world.server)?;
        if now.updates[0] > after.updates[0] {
            break now;
        }
        ensure!(Instant::now() < deadline, "the new service does not arrive:\n{}", world.server.log());
        std::thread::sleep(Duration::from_millis(100));
    };
    ensure!(now.updates[..2] == [after.updates[0] + 1, after.updates[1]], "{after:?}, then {now:?}");
    world.wait_answer().map(drop)
}

#[derive(Debug)]
struct Counts {
    updates: Vec<u64>,
    received: u64,
}

impl Counts {
    fn read(pod: &Pod) -> Result<Self> {
        let updates = UPDATES.iter().map(|name| pod.statistic(name)).collect::<Result<_>>()?;
        Ok(Self { updates, received: pod.statistic(RECEIVED)? })
    }
}

/// In the variant of xDS that is the default.
pub(crate) fn restart_delta() -> Result<()> {
    restart("true")
}

/// In the older variant.
pub(crate) fn restart_sotw() -> Result<()> {
    restart("false")
}

/// The control plane is killed, and then Envoy and the agent of the server, which start again without it.
fn restart(delta: &str) -> Result<()> {
    let mut world = World::start("", &[], &[("ISTIO_DELTA_XDS", delta)])?;
    world.plane.kill();
    let killed = Instant::now();
    world.server.signal("KILL")?;
    world.server.wait_end()?;
    world.server.start_agent()?;
    world.server.wait_ready()?;
    let echoed = world.wait_answer()?;
    assert!(echoed.headers["x-forwarded-client-cert"].contains("sa/frontend"), "{echoed:?}");
    let detail = world.server.status("/healthz/ready")?;
    ensure!(detail.status == 200 && detail.body.contains("last good configuration"), "{detail:?}");
    let metrics = world.server.status("/metrics")?.ok()?;
    ensure!(metrics.contains("istio_agent_control_plane_connected 0"), "{metrics}");
    // Names are known as well.
    let dig = world.server.dig(&["+short", "reviews.shop.mesh"])?;
    ensure!(dig.trim() == "10.96.0.10", "{dig}");
    std::thread::sleep(Duration::from_secs(10).saturating_sub(killed.elapsed()));
    world.wait_answer()?;
    world.plane.restart()?;
    wait_connected(&world.server)?;
    world.wait_answer()?;
    Ok(())
}

/// Nothing of a pod is left when its agent is killed.
pub(crate) fn orphan() -> Result<()> {
    let mut world = World::start("", &[], &[])?;
    let envoy = world.server.envoy_id()?;
    ensure!(is_alive(envoy), "Envoy does not run");
    world.server.signal("KILL")?;
    world.server.wait_end()?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_alive(envoy) {
        ensure!(
            Instant::now() < deadline,
            "process {envoy} is still there: {}",
            sh("ps", &["-p", &envoy.to_string()])?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A file system of one mebibyte; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Result<Self> {
        fs::create_dir_all(&path)?;
        sh("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", path.to_str().context("path")?])?;
        Ok(Self(path))
    }

    fn fill(&self) -> Result<()> {
        let mut file = fs::File::create(self.0.join("filler"))?;
        let error = std::iter::repeat_with(|| file.write_all(&[0; 512])).find_map(Result::err);
        ensure!(
            error.is_some_and(|error| error.kind() == io::ErrorKind::StorageFull),
            "the disk is not full"
        );
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = sh("umount", &["-l", &self.0.to_string_lossy()]);
    }
}

/// The disk is full when the configuration changes: traffic goes on, what was kept before serves an outage, and what comes once
/// there is room is kept again.
pub(crate) fn full_disk() -> Result<()> {
    let mut world = World::start("", &[], &[("CANOPUS_STATE_DIRECTORY", "./state")])?;
    world.server.signal("KILL")?;
    world.server.wait_end()?;
    let disk = SmallDisk::mount(world.server.directory().join("state"))?;
    world.server.start_agent()?;
    world.server.wait_ready()?;
    world.wait_answer()?;
    std::thread::sleep(Duration::from_secs(1));
    disk.fill()?;
    let kept = stored_bytes(&world.server)?;
    // More than what is left of the last page of a file.
    let many = (0..50).map(|number| ANOTHER.replace("another", &format!("another-{number}")));
    world.plane.write("many.yaml", &many.collect::<Vec<_>>().join("---"))?;
    wait(&world.server, "the full disk is not reported", |pod| Ok(pod.log().contains("make room")))?;
    world.wait_answer()?;
    world.plane.kill();
    world.server.signal("KILL")?;
    world.server.wait_end()?;
    world.server.start_agent()?;
    world.server.wait_ready()?;
    world.wait_answer()?;
    let detail = world.server.status("/healthz/ready")?;
    ensure!(detail.body.contains("last good configuration"), "{detail:?}");
    fs::remove_file(disk.0.join("filler"))?;
    world.plane.restart()?;
    wait_connected(&world.server)?;
    wait(&world.server, "the change is not kept", |pod| Ok(stored_bytes(pod)? > kept))?;
    world.wait_answer().map(drop)
}

fn stored_bytes(pod: &Pod) -> Result<u64> {
    let directory = pod.directory().join("state/xds");
    let sizes = fs::read_dir(directory)?.map(|file| Ok(file?.metadata()?.len()));
    Ok(sizes.collect::<Result<Vec<_>>>()?.iter().sum())
}

fn wait(pod: &Pod, problem: &str, holds: impl Fn(&Pod) -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds(pod)? {
        ensure!(Instant::now() < deadline, "{problem}:\n{}", pod.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
