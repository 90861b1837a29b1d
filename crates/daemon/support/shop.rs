//! A shop behind an ingress gateway: `shop.example.com` in front of two upstreams.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::{Echo, Echoed, Envoy, eventually, free_port, http};

use crate::local_mesh::LocalMesh;

const PATIENCE: Duration = Duration::from_secs(60);

/// The file with everything.
const FILE: &str = "shop.yaml";

/// The mesh of the shop; gateways are attached by who needs them.
pub(crate) struct Shop {
    pub(crate) mesh: LocalMesh,
    /// Where its gateways listen.
    pub(crate) gateway: SocketAddr,
    documents: String,
    _upstreams: [Echo; 2],
}

impl Shop {
    /// Starts the upstreams and the control plane.
    pub(crate) async fn open() -> Result<Self> {
        Self::open_with("", &[]).await
    }

    /// Like [`Shop::open`], with these documents beside its own and these environment variables.
    pub(crate) async fn open_with(more: &str, environment: &[(&str, &str)]) -> Result<Self> {
        Self::open_for(more, environment, false).await
    }

    /// Like [`Shop::open_with`], for gateways that prove who they are.
    pub(crate) async fn open_secure(more: &str, environment: &[(&str, &str)]) -> Result<Self> {
        Self::open_for(more, environment, true).await
    }

    async fn open_for(more: &str, environment: &[(&str, &str)], is_secure: bool) -> Result<Self> {
        let upstreams = [Echo::start("stable").await?, Echo::start("canary").await?];
        let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let documents = include_str!("shop.yaml")
            .replace("GATEWAY_PORT", &gateway.port().to_string())
            .replace("STABLE_PORT", &upstreams[0].address().port().to_string())
            .replace("CANARY_PORT", &upstreams[1].address().port().to_string());
        let canopusd = Path::new(env!("CARGO_BIN_EXE_canopusd"));
        let all = format!("{documents}---\n{more}");
        let mesh = if is_secure {
            LocalMesh::start_secure(canopusd, FILE, &all, environment).await?
        } else {
            LocalMesh::start_with(canopusd, FILE, &all, environment).await?
        };
        Ok(Self { mesh, gateway, documents, _upstreams: upstreams })
    }

    /// Writes the objects again with another text in place of one.
    pub(crate) fn rewrite(&self, from: &str, to: &str) -> Result<()> {
        self.mesh.write(FILE, &self.documents.replace(from, to))
    }

    /// Writes the shop with a route of this timeout and these documents beside its own, as one change.
    pub(crate) fn write(&self, timeout: u32, more: &str) -> Result<()> {
        let route = format!("name: everyone\n    timeout: {timeout}s\n");
        let documents = self.documents.replace("name: everyone\n", &route);
        self.mesh.write(FILE, &format!("{documents}---\n{more}"))
    }

    /// Changes a route of the shop; every number gives another one, half of them to another upstream.
    pub(crate) fn change(&self, number: usize) -> Result<()> {
        let host = if number.is_multiple_of(2) { "shop.internal" } else { "canary.shop.internal" };
        let route = format!("name: everyone\n    timeout: {}s\n", number + 1);
        let documents = self.documents.replace("host: shop.internal", &format!("host: {host}"));
        self.mesh.write(FILE, &documents.replace("name: everyone\n", &route))
    }

    /// Leads everybody to a subset of this number, which is new, and takes all others away.
    pub(crate) fn use_subset(&self, number: usize) -> Result<()> {
        self.split(number, 1)
    }

    /// Leads everybody to so many subsets, the first of which has this number, and takes all others away.
    pub(crate) fn split(&self, first: usize, count: usize) -> Result<()> {
        let names: Vec<String> = (first..first + count).map(|number| format!("v{number}")).collect();
        let subsets: String = names.iter().map(|name| format!("  - name: {name}\n")).collect();
        let share = |(at, name): (usize, &String)| {
            let weight = 100 / count + if at == 0 { 100 % count } else { 0 };
            format!(
                "    - destination:\n        host: shop.internal\n        subset: {name}\n      weight: {weight}\n"
            )
        };
        let routes: String = names.iter().enumerate().map(share).collect();
        let documents = self.documents.replace("    - destination:\n        host: shop.internal\n", &routes);
        let rule = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata:\n  name: shop\n  namespace: demo\n\
             spec:\n  host: shop.internal\n  subsets:\n{subsets}"
        );
        self.mesh.write(FILE, &format!("{documents}---\n{rule}"))
    }

    /// Waits until an Envoy has the route of a change.
    pub(crate) async fn arrived(&self, number: usize, envoy: &Envoy) -> Result<()> {
        let route = format!("\"timeout\":\"{}s\"", number + 1);
        eventually("the last route", PATIENCE, async || {
            let dump = envoy.config_dump().await?.to_string();
            ensure!(dump.contains(&route), "no {route}:\n{}", self.mesh.log());
            Ok(())
        })
        .await
    }

    /// A request to the shop.
    pub(crate) fn request(&self) -> http::Request {
        http::request(http::Method::GET, self.gateway, "/items").host("shop.example.com")
    }

    /// Which upstream answers a request.
    pub(crate) async fn answered_by(&self, headers: &[(&str, &str)]) -> Result<String> {
        let request =
            headers.iter().fold(self.request(), |request, (name, value)| request.header(name, value));
        Ok(Echoed::from_body(&request.send().await?.ok()?)?.upstream)
    }
}
