//! The scripted proxies against a real server in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use canopus_bench::client::{Fleet, Kind, Record, Role, Target};
use canopus_proto::Message as _;
use canopus_proto::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource, Node};
use canopus_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use canopus_xds::server::{Options, serve};
use canopus_xds::session::Protocol;
use canopus_xds::types::{ENDPOINT, Types};
use canopus_xds::{ControlPlane, Interest, Mailboxes, Peer, Refusal, Resource, ResourceSet, SessionEvent};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

const PROXIES: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane with two clusters, their endpoints and no listeners.
#[derive(Default)]
struct World {
    priority: Mutex<u32>,
    revision: AtomicU64,
    mailboxes: Mailboxes,
}

impl World {
    fn change(&self, priority: u32) {
        *self.priority.lock() = priority;
        let revision = self.revision.fetch_add(1, Ordering::SeqCst) + 1;
        self.mailboxes.revise(revision, Types::only(ENDPOINT));
    }
}

fn cluster(name: &str) -> Resource {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let eds_config = Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() });
    let eds_cluster_config = Some(EdsClusterConfig { eds_config, ..Default::default() });
    let cluster = Cluster { name: name.into(), eds_cluster_config, ..Default::default() };
    Resource::new(name, cluster.encode_to_vec())
}

fn endpoints(name: &str, priority: u32) -> Resource {
    let endpoints = vec![LocalityLbEndpoints { priority, ..Default::default() }];
    let assignment = ClusterLoadAssignment { cluster_name: name.into(), endpoints, ..Default::default() };
    Resource::new(name, assignment.encode_to_vec())
}

impl ControlPlane for World {
    type Client = ();

    async fn connect(&self, peer: &Peer, _: Node) -> Result<Arc<()>, Refusal> {
        self.mailboxes.add(&peer.mailbox);
        Ok(Arc::new(()))
    }

    fn resources(&self, (): &(), type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        let all = match Kind::from_type_url(type_url) {
            Some(Kind::Cds) => vec![cluster("a"), cluster("b")],
            Some(Kind::Eds) => vec![endpoints("a", *self.priority.lock()), endpoints("b", 0)],
            _ => Vec::new(),
        };
        Ok(all.into_iter().filter(|resource| interest.covers(&resource.name)).collect())
    }

    fn observe(&self, (): &(), _: SessionEvent) {}
}

async fn start() -> Result<(Arc<World>, Target)> {
    let world = Arc::new(World { priority: Mutex::new(1), ..World::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let incoming = TcpListenerStream::new(listener);
    tokio::spawn(serve(incoming, world.clone(), Options::default(), std::future::pending()));
    Ok((world, Target { address, tls: None }))
}

fn fleet(target: Target, protocol: Protocol) -> Fleet {
    let role = |index| Role::plain(index, "shop", "cart");
    let record = Arc::new(Mutex::new(Record::default()));
    let mut fleet = Fleet::new((0..PROXIES).map(role), protocol, target, record);
    fleet.connect(0..PROXIES);
    fleet
}

/// Twenty proxies get everything, and of a change exactly what changed.
async fn follows(protocol: Protocol) -> Result<()> {
    let (world, target) = start().await?;
    let fleet = fleet(target, protocol);
    fleet.ready(PROXIES, PATIENCE).await?;
    for index in 0..PROXIES {
        assert_eq!(fleet.proxy(index).held(Kind::Cds).len(), 2);
        assert_eq!(fleet.proxy(index).held(Kind::Eds).len(), 2);
    }
    let before = fleet.totals();
    fleet.expect(Kind::Eds, "a", PROXIES);
    world.change(2);
    let reached = fleet.reached(Kind::Eds, "a", PATIENCE).await.context("not everyone was told")?;
    assert_eq!(reached.delays.len(), PROXIES);
    let received = fleet.totals() - &before;
    assert_eq!(received.messages_of(Kind::Eds), PROXIES as u64);
    assert_eq!(received.messages(), PROXIES as u64, "nothing else is sent");
    let witness: Vec<_> = fleet.proxy(0).bodies().map(|(_, _, body)| body.clone()).collect();
    let sent = |priority| witness.contains(&endpoints("a", priority).body);
    assert!(sent(2) && !sent(1));
    Ok(())
}

#[tokio::test]
async fn fleet_follows_a_delta_server() -> Result<()> {
    follows(Protocol::Delta).await
}

#[tokio::test]
async fn fleet_follows_a_state_of_the_world_server() -> Result<()> {
    follows(Protocol::Sotw).await
}
