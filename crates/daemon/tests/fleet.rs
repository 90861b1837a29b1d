//! Fifty stock Envoys on one control plane: hundreds of changes under traffic, and a control plane that is killed.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/traffic.rs"]
mod traffic;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Echo, Envoy, eventually, free_port};
use local_mesh::LocalMesh;
use local_mesh::bootstrap::Bootstrap;
use serde_json::Value;
use traffic::Traffic;

const TEAMS: usize = 5;
/// Gateways and sidecars of each team.
const GATEWAYS: usize = 8;
const SIDECARS: usize = 2;
const CHANGES: usize = 300;
/// Changes made while the control plane is down.
const MISSED: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);
/// What fifty Envoys may take together.
const ENVOYS_MIB: u64 = 50 * 80;

/// What a team has besides its services: a gateway of its own in front of two of them.
const TEAM: &str = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: TEAM}
spec:
  selector: {gateway: TEAM}
  servers:
  - port: {number: GATEWAY_PORT, name: http, protocol: HTTP}
    hosts: [TEAM.example.com]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: public, namespace: TEAM}
spec:
  hosts: [TEAM.example.com]
  gateways: [public]
  http:
  - timeout: TIMEOUT
    route:
    - destination: {host: UPSTREAM.TEAM.internal}
";

/// A service of a team, which the whole mesh knows.
const SERVICE: &str = "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: NAME, namespace: TEAM}
spec:
  hosts: [NAME.TEAM.internal]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports:
  - {number: SERVICE_PORT, name: http, protocol: HTTP, targetPort: TARGET_PORT}
  endpoints:
  - address: 127.0.0.1
";

/// One team and its place in the mesh.
struct Team {
    name: String,
    /// Where its gateways listen; the kernel spreads connections over them.
    gateway: SocketAddr,
    /// Where sidecars listen for its services, likewise.
    service: SocketAddr,
    documents: String,
}

impl Team {
    fn new(number: usize, upstreams: &[Echo; 2]) -> Result<Self> {
        let name = format!("team-{number}");
        let gateway = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let service = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let [stable, canary] = upstreams.each_ref().map(|upstream| upstream.address().port());
        let mut documents = TEAM.to_owned();
        // The last comes and goes.
        for (name, port) in [("stable", stable), ("canary", canary), ("extra", service.port())] {
            documents += &SERVICE.replace("NAME", name).replace("TARGET_PORT", &port.to_string());
        }
        let documents = documents
            .replace("GATEWAY_PORT", &gateway.port().to_string())
            .replace("SERVICE_PORT", &service.port().to_string())
            .replace("TEAM", &name);
        Ok(Self { name, gateway, service, documents })
    }

    fn file(&self) -> String {
        format!("{}.yaml", self.name)
    }

    /// The team's objects after a change: the route is a new one each time, and every other change leads it to another
    /// upstream.
    fn documents(&self, change: usize) -> String {
        let upstream = if change.is_multiple_of(2) { "stable" } else { "canary" };
        let written = self.documents.replace("UPSTREAM", upstream).replace("TIMEOUT", &timeout(change));
        let (always, _extra) = written.rsplit_once("\n---\n").unwrap_or((&written, ""));
        if change % 20 < TEAMS { always.to_owned() } else { written.clone() }
    }
}

fn timeout(change: usize) -> String {
    // Long enough for nobody to wait for.
    format!("{}s", change + 100)
}

/// An Envoy and what it is called.
struct Member {
    envoy: Envoy,
    team: usize,
    /// `pod.namespace`.
    id: String,
    is_gateway: bool,
}

impl Member {
    async fn start(xds: SocketAddr, team: usize, number: usize) -> Result<Self> {
        let is_gateway = number < GATEWAYS;
        let namespace = format!("team-{team}");
        let name = format!("{}-{number}", if is_gateway { "gateway" } else { "sidecar" });
        // Nobody else has this address: a proxy is what the mesh knows of its address.
        let address = format!("127.0.{}.{}", team + 1, number + 1);
        let metadata = format!(
            "CLUSTER_ID: Kubernetes, INTERCEPTION_MODE: NONE, LABELS: {{{}: {namespace}}}",
            if is_gateway { "gateway" } else { "app" }
        );
        let bootstrap = Bootstrap {
            kind: if is_gateway { "router" } else { "sidecar" },
            address: &address,
            name: &name,
            namespace: &namespace,
            metadata: &metadata,
            variant: if number.is_multiple_of(2) { "DELTA_GRPC" } else { "GRPC" },
            xds,
            ..Bootstrap::default()
        };
        let envoy = Envoy::start(&bootstrap.yaml()).await.with_context(|| name.clone())?;
        Ok(Self { envoy, team, id: format!("{name}.{namespace}"), is_gateway })
    }

    /// The versions of the clusters and listeners it has, by the names of their types.
    async fn versions(&self) -> Result<BTreeMap<&'static str, String>> {
        let dump = self.envoy.config_dump().await?;
        let sections = dump["configs"].as_array().context("a dump without sections")?;
        let version = |kind: &str| {
            let section =
                sections.iter().find(|it| it["@type"].as_str().is_some_and(|it| it.ends_with(kind)));
            section.and_then(|section| section["version_info"].as_str()).unwrap_or_default().to_owned()
        };
        Ok([("Cluster", version("ClustersConfigDump")), ("Listener", version("ListenersConfigDump"))].into())
    }
}

struct Fleet {
    mesh: LocalMesh,
    teams: Vec<Team>,
    members: Vec<Member>,
    _upstreams: [Echo; 2],
}

impl Fleet {
    async fn start() -> Result<Self> {
        let upstreams = [Echo::start("stable").await?, Echo::start("canary").await?];
        let teams: Vec<Team> =
            (0..TEAMS).map(|number| Team::new(number, &upstreams)).collect::<Result<_>>()?;
        let canopusd = Path::new(env!("CARGO_BIN_EXE_canopusd"));
        let mesh = LocalMesh::start(canopusd, &teams[0].file(), &teams[0].documents(0)).await?;
        for team in &teams[1..] {
            mesh.write(&team.file(), &team.documents(0))?;
        }
        let members = attach(mesh.xds).await.with_context(|| format!("canopusd:\n{}", mesh.log()))?;
        Ok(Self { mesh, teams, members, _upstreams: upstreams })
    }

    fn change(&self, number: usize) -> Result<()> {
        let team = &self.teams[number % TEAMS];
        self.mesh.write(&team.file(), &team.documents(number))
    }

    /// Makes changes as fast as a busy team would.
    async fn churn(&self, changes: std::ops::Range<usize>) -> Result<()> {
        for number in changes {
            self.change(number)?;
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        Ok(())
    }

    /// Every gateway and a handful of the services, all the time.
    fn traffic(&self) -> Vec<Traffic> {
        let pause = Duration::from_millis(25);
        let public = self.teams.iter().map(|team| (team.gateway, format!("{}.example.com", team.name)));
        let inner = self
            .teams
            .iter()
            .map(|team| (team.service, format!("stable.{}.internal:{}", team.name, team.service.port())));
        public.chain(inner).map(|(address, host)| Traffic::to(address, &host, pause)).collect()
    }

    /// Every gateway has the route of the last change of its team.
    async fn arrived(&self, changes: usize) -> Result<()> {
        for member in self.members.iter().filter(|member| member.is_gateway) {
            let last = (0..changes).rev().find(|change| change % TEAMS == member.team).unwrap_or_default();
            let route = format!("\"timeout\": \"{}\"", timeout(last));
            eventually("the last route", PATIENCE, async || {
                let routes = member.envoy.ask("/config_dump?resource=dynamic_route_configs").await?;
                ensure!(routes.contains(&route), "{} has no {route}", member.id);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Nothing is outstanding, and everybody has what the control plane believes it has.
    async fn converged(&self) -> Result<()> {
        eventually("convergence", PATIENCE, async || {
            let told = self.mesh.ask("/debug/convergence").await?;
            ensure!(told["converged"] == true, "{}", told["objects"]);
            let clients = told["clients"].as_array().context("no clients")?;
            ensure!(clients.len() == self.members.len(), "{} clients", clients.len());
            for member in &self.members {
                let prefix = format!("{}-", member.id);
                let is_member = |client: &&Value| {
                    client["connection"].as_str().is_some_and(|name| name.starts_with(&prefix))
                };
                let client = clients.iter().find(is_member).with_context(|| member.id.clone())?;
                ensure!(client["outstanding"] == Value::Array(Vec::new()), "{client}");
                let believed = |kind: &str| {
                    let versions = client["versions"].as_object().into_iter().flatten();
                    let mut found = versions.filter(|(type_url, _)| type_url.ends_with(&format!(".{kind}")));
                    found.next().and_then(|(_, version)| version.as_str()).unwrap_or_default().to_owned()
                };
                for (kind, version) in member.versions().await? {
                    let believed = believed(kind);
                    ensure!(!version.is_empty(), "{} has no {kind}", member.id);
                    ensure!(version == believed, "{}: {kind} {version}, not {believed}", member.id);
                }
            }
            Ok(())
        })
        .await
    }

    /// Nobody has refused anything.
    async fn accepted(&self) -> Result<()> {
        for member in &self.members {
            let rejected = member.envoy.rejections().await?;
            ensure!(rejected.is_empty(), "{}: {rejected:?}\n{}", member.id, self.mesh.log());
        }
        Ok(())
    }
}

/// Starts all Envoys, those of a team one after another.
async fn attach(xds: SocketAddr) -> Result<Vec<Member>> {
    let team = async |team: usize| {
        let mut members = Vec::new();
        for number in 0..GATEWAYS + SIDECARS {
            members.push(Member::start(xds, team, number).await?);
        }
        anyhow::Ok(members)
    };
    let (a, b, c, d, e) = tokio::try_join!(team(0), team(1), team(2), team(3), team(4))?;
    Ok([a, b, c, d, e].into_iter().flatten().collect())
}

/// The memory of a process that it shares with nobody, with its part of what it shares; where the system tells.
fn memory_mib(process: u32) -> Option<u64> {
    let told = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_proxies_converge_under_traffic_and_outlive_the_control_plane() -> Result<()> {
    let mut fleet = Fleet::start().await?;
    fleet.arrived(1).await?;
    let traffic = fleet.traffic();
    fleet.churn(1..CHANGES / 2).await?;

    fleet.mesh.kill();
    fleet.churn(CHANGES / 2..CHANGES / 2 + MISSED).await?;
    fleet.mesh.restart().await?;
    fleet.churn(CHANGES / 2 + MISSED..CHANGES).await?;

    let explained = || format!("canopusd:\n{}", fleet.mesh.log());
    fleet.arrived(CHANGES).await.with_context(explained)?;
    fleet.converged().await.with_context(explained)?;
    fleet.accepted().await?;
    for requests in traffic {
        ensure!(requests.stop().await.with_context(explained)? > 0, "there was no traffic");
    }

    check_memory(&fleet)
}

/// The test fits small machines.
#[expect(clippy::print_stdout, reason = "figures for who asks for them")]
fn check_memory(fleet: &Fleet) -> Result<()> {
    let envoys: Vec<u64> = fleet.members.iter().filter_map(|it| memory_mib(it.envoy.id())).collect();
    let together = envoys.iter().sum::<u64>();
    let own = fleet.mesh.id().and_then(memory_mib).unwrap_or_default();
    println!("{} Envoys take {together} MiB, canopusd {own} MiB", envoys.len());
    ensure!(together < ENVOYS_MIB, "{} Envoys take {together} MiB", envoys.len());
    ensure!(own < 200, "canopusd takes {own} MiB");
    Ok(())
}
