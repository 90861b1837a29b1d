//! The HTTP connection manager: what every HTTP listener has in common, whoever opens it.

pub(crate) mod filters;
pub(crate) mod headers;
pub(crate) mod settings;

mod shared;

use std::sync::LazyLock;

use canopus_base::protocol::Protocol;
use canopus_mesh::service::Service;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::CodecType;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use canopus_proto::fields::{http_connection_manager, rds};
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_runtime::flags::PILOT_HTTP10;

use crate::env::{Class, Env};
use crate::filter::Filters;
use crate::names;
use crate::route_config::Table;
use headers::CertDetails;
use shared::SharedPart;

const NAME: &str = "envoy.filters.network.http_connection_manager";

/// Room for what is usually a manager's own.
const OWN_SIZE: usize = 512;

/// A connection manager to be built.
pub(crate) struct Manager<'a> {
    /// The side of the connection it is on.
    pub(crate) class: Class,
    /// What is particular to its listener.
    pub(crate) particulars: Particulars,
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

/// What a listener wants of its connection manager beyond what all have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Particulars {
    /// What HTTP/1 clients may do beyond Envoy's defaults; `None` leaves the options out.
    pub(crate) http1: Option<Http1>,
    /// Whether empty HTTP/2 options are written.
    pub(crate) http2: bool,
    /// The value of the `server` header; Envoy's own if empty.
    pub(crate) server_name: String,
    /// What is done with the `server` header of the upstream.
    pub(crate) server_transformation: i32,
    /// Whether requests get an id; Envoy's default if not said.
    pub(crate) generate_request_id: Option<bool>,
    /// The `forward_client_cert_details` (XFCC).
    pub(crate) forwarded_client_cert: i32,
    /// Which parts of the client's certificate `x-forwarded-client-cert` carries.
    pub(crate) client_cert_details: Option<CertDetails>,
    /// How many proxies in front of this one are believed.
    pub(crate) trusted_hops: u32,
}

/// What HTTP/1 clients may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Http1 {
    /// Whether they may speak HTTP/1.0.
    pub(crate) accepts_http10: bool,
    /// Whether they may ask for absolute URLs, as of a forward proxy.
    pub(crate) allows_absolute_urls: bool,
}

/// Where a connection manager gets its routes from.
pub(crate) enum Routes {
    /// A route table of this name, asked for on the same stream.
    Named(String),
    /// The routes of this table, inside the listener.
    Inline(Box<Table>),
}

impl Manager<'_> {
    /// A connection manager with nothing particular about it; `stat_prefix` does not yet end in a semicolon.
    pub(crate) fn new(class: Class, stat_prefix: &str, routes: Routes) -> Self {
        Self {
            class,
            particulars: Particulars::default(),
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

    /// Adds the network filter that runs it. All of its configuration but statistics and routes is shared with managers
    /// like this one.
    pub(crate) fn add_to(&self, filters: &mut Filters, env: &Env<'_>) {
        let shared = env.ctx.get::<SharedPart>(&shared::Traits::new(env, self));
        filters.add_in_place(NAME, shared.len() + OWN_SIZE, |manager| {
            self.write_own(manager);
            manager.append(&*shared);
        });
    }

    fn write_own(&self, manager: &mut ProtoWriter<HttpConnectionManager>) {
        if self.http3 {
            manager.enumeration(http_connection_manager::CODEC_TYPE, CodecType::Http3);
        }
        manager.string(http_connection_manager::STAT_PREFIX, &self.stat_prefix);
        match &self.routes {
            Routes::Named(name) => manager.nested(http_connection_manager::RDS, |fields| {
                static SOURCE: LazyLock<Encoded<Rds>> = LazyLock::new(|| {
                    Encoded::new(&Rds { config_source: Some(names::ads()), ..Default::default() })
                });
                fields.append(&*SOURCE);
                fields.string(rds::ROUTE_CONFIG_NAME, name);
            }),
            Routes::Inline(table) => {
                let field = http_connection_manager::ROUTE_CONFIG;
                manager.nested_of_about(field, OWN_SIZE, |fields| table.write(fields));
            }
        }
    }
}

/// What HTTP/1 clients of a proxy may do that may speak HTTP/1.0; `None` if they may not.
pub(crate) fn http10(env: &Env<'_>) -> Option<Http1> {
    accepts_http10(env).then_some(Http1 { accepts_http10: true, allows_absolute_urls: false })
}

/// Whether the proxy takes HTTP/1.0 requests.
pub(crate) fn accepts_http10(env: &Env<'_>) -> bool {
    env.flag(PILOT_HTTP10) || env.audience.http.http10
}
