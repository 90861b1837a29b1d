//! The HTTP connection manager: what every HTTP listener has in common, whoever opens it.

pub(crate) mod filters;
pub(crate) mod headers;
pub(crate) mod settings;

mod shared;

use canopus_base::protocol::Protocol;
use canopus_mesh::service::Service;
use canopus_proto::envoy::config::core::v3::Http1ProtocolOptions;
use canopus_proto::envoy::config::listener::v3::{Filter, filter::ConfigType};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::CodecType;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use canopus_proto::{Any, type_url};
use canopus_runtime::flags::PILOT_HTTP10;

use crate::env::{Class, Env};
use crate::names;
use crate::pieces::Pieces;
use crate::route_config::Table;
use shared::Shared;

/// The fields of a connection manager that are its own.
mod field {
    pub(super) const STAT_PREFIX: u32 = 2;
    pub(super) const RDS: u32 = 3;
    pub(super) const ROUTE_CONFIG: u32 = 4;
}

/// Room for what is usually a manager's own.
const OWN_SIZE: usize = 1024;

/// A connection manager to be built.
pub(crate) struct Manager<'a> {
    /// The side of the connection it is on.
    pub(crate) class: Class,
    /// What is particular to its listener; the rest is filled in.
    pub(crate) base: HttpConnectionManager,
    /// The prefix of its statistics, with the semicolon it ends in.
    pub(crate) stat_prefix: String,
    /// Where its routes come from.
    pub(crate) routes: Routes,
    /// What is spoken on the port.
    pub(crate) protocol: Protocol,
    /// Whether the address of the peer is that of the client.
    pub(crate) use_remote_address: bool,
    /// Whether responses do not carry Envoy's own headers.
    pub(crate) suppress_debug_headers: bool,
    /// Whether the headers that tell about the workload go to mesh services only.
    pub(crate) peer_headers_in_mesh_only: bool,
    /// Whether it serves HTTP/3.
    pub(crate) http3: bool,
    /// Whether connections came through an HBONE tunnel, whose ends know each other already.
    pub(crate) tunnelled: bool,
    /// The service it was made for, if for one.
    pub(crate) service: Option<&'a Service>,
    /// The port that extensions know it by: the workload's own where requests come in, else the one clients connect to.
    pub(crate) port: u32,
}

/// Where a connection manager gets its routes from.
pub(crate) enum Routes {
    /// A route table of this name, asked for on the same stream.
    Named(String),
    /// Those of this table.
    Inline(Box<Table>),
}

impl Manager<'_> {
    /// A connection manager with nothing particular about it; `stat_prefix` does not yet end in a semicolon.
    pub(crate) fn new(class: Class, stat_prefix: &str, routes: Routes) -> Self {
        Self {
            class,
            base: HttpConnectionManager::default(),
            stat_prefix: names::stat_name(stat_prefix),
            routes,
            protocol: Protocol::Http,
            use_remote_address: false,
            suppress_debug_headers: false,
            peer_headers_in_mesh_only: false,
            http3: false,
            tunnelled: false,
            service: None,
            port: 0,
        }
    }

    /// The network filter that runs it.
    pub(crate) fn filter(&self, env: &Env<'_>) -> Filter {
        let config = Any { type_url: type_url::<HttpConnectionManager>(), value: self.encode(env).into() };
        Filter {
            name: "envoy.filters.network.http_connection_manager".into(),
            config_type: Some(ConfigType::TypedConfig(config)),
        }
    }

    /// The whole configuration. All of it but statistics and routes is shared with managers like this one.
    fn encode(&self, env: &Env<'_>) -> Vec<u8> {
        let shared = env.ctx.get::<Shared>(&shared::Traits::of(env, self));
        let mut manager = Pieces::with_capacity(shared.len() + OWN_SIZE);
        if self.http3 {
            let codec_type = CodecType::Http3 as i32;
            manager.fields(&HttpConnectionManager { codec_type, ..Default::default() });
        }
        manager.text(field::STAT_PREFIX, &self.stat_prefix);
        match &self.routes {
            Routes::Named(name) => {
                let rds = Rds { config_source: Some(names::ads()), route_config_name: name.clone() };
                manager.message(field::RDS, &rds);
            }
            Routes::Inline(table) => manager.body(field::ROUTE_CONFIG, &table.encode()),
        }
        manager.append(&shared);
        manager.into_vec()
    }
}

/// HTTP/1 options of a proxy whose clients may speak HTTP/1.0; `None` if they may not.
pub(crate) fn http10_options(env: &Env<'_>) -> Option<Http1ProtocolOptions> {
    accepts_http10(env).then(|| Http1ProtocolOptions { accept_http_10: true, ..Default::default() })
}

/// Whether the proxy takes HTTP/1.0 requests.
pub(crate) fn accepts_http10(env: &Env<'_>) -> bool {
    env.flag(PILOT_HTTP10) || env.view.metadata.http10 == "1"
}
