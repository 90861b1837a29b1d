//! `canopus explain`: the way of a request through the very configuration that proxies have.

mod access_log;
mod answer;
mod flags;
mod proxy;
pub(crate) mod request;

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use self::access_log::Line;
use self::proxy::KnownProxy;
use crate::cluster::{Cluster, KubeArguments};
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::target::{Access, Source};
use request::Request;

/// What a dump has to have in it.
const DUMP: &str = "/config_dump?include_eds=true";

/// How many endpoints of a cluster have their proxies asked.
const MOST_SERVERS: usize = 4;

/// Follow a request through the configuration of proxies: listener, filter chain, route, cluster, endpoints, and what the
/// proxy on the other side does with it.
///
/// Nothing is sent. The configuration is what the proxies themselves dump, so the answer is true of the bytes they run on. The
/// proxy on the other side is asked too if it can be found: in Kubernetes it is the pod with the endpoint's address,
/// elsewhere one of --server.
///
/// With --access-log, a line that a proxy has logged is taken apart and its response flags are explained.
#[derive(clap::Args, Debug)]
#[command(override_usage = "\
canopus explain [OPTIONS] PROXY METHOD URL
       canopus explain [OPTIONS] --file FILE METHOD URL
       canopus explain [OPTIONS] --proxy-address HOST:PORT METHOD URL
       canopus explain --access-log LINE")]
#[command(after_help = "\
Examples:
  canopus explain productpage-v1-7c4.bookinfo GET http://reviews:9080/x -H 'end-user: jason'
  canopus explain --proxy-address localhost:15000 --server 10.0.0.7:15000 GET http://reviews:9080/x
  canopus generate -f mesh/ --pod productpage-v1-7c4.bookinfo -o config_dump | canopus explain -f - GET http://reviews:9080/x
  kubectl logs productpage-v1-7c4 -c istio-proxy | tail -1 | canopus explain --access-log -

Exit codes: 0 the request goes to a cluster, is redirected or answered, 1 it goes nowhere, is denied, or the proxy could not
be read, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// The proxy (unless a dump or an address is given), the method and the URL.
    #[arg(value_name = "[PROXY] METHOD URL", num_args = 2..=3, required_unless_present = "access_log")]
    words: Vec<String>,
    /// A header of the request, as `name: value`; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The address that the host has for the client, where several listeners share a port.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<std::net::IpAddr>,
    /// The request arrives at the proxy instead of leaving through it.
    #[arg(long)]
    inbound: bool,
    /// A configuration dump, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// The proxy of a server, as HOST:PORT of its administration interface or a file with its dump; may be repeated.
    #[arg(long, value_name = "HOST:PORT|FILE")]
    server: Vec<String>,
    /// A line of a proxy's access log, as text or JSON, or `-` for standard input.
    #[arg(long, value_name = "LINE", conflicts_with = "words")]
    access_log: Option<String>,
    /// Port of Envoy's administration interface in the pod.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
    /// Address of Envoy's administration interface, for proxies outside Kubernetes.
    #[arg(long, value_name = "HOST:PORT")]
    proxy_address: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let explained = match &arguments.access_log {
        Some(line) => Line::read(line).map(|line| (line.answer(), true)),
        None => explain(global, kube, arguments),
    };
    match explained {
        Ok((answer, arrives)) => {
            let code = if arrives { ExitCode::SUCCESS } else { exit::FAILURE };
            let text = if arguments.access_log.is_some() { access_log::text } else { answer::text };
            print(&arguments.output.render(&answer, text), code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn explain(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<(Value, bool)> {
    let (proxy, method, url) = match arguments.words.as_slice() {
        [method, url] => (None, method, url),
        [proxy, method, url] => (Some(proxy.as_str()), method, url),
        _ => bail!("expected a proxy, a method and a URL"),
    };
    let request = Request::parse(method, url, &arguments.headers)?;
    let address = arguments.proxy_address.as_deref();
    let access = Access { global, kube, port: arguments.proxy_admin_port, address };
    let source = match (proxy, arguments.file.as_deref(), address) {
        (Some(proxy), None, None) => Source::Proxy(proxy),
        (None, Some(file), None) => Source::File(file),
        (None, None, Some(address)) => Source::Address(address),
        _ => bail!("name one proxy: PROXY, --file or --proxy-address"),
    };
    let own = KnownProxy::read(&access.get(&source, DUMP)?)?;
    let mut call = request.call(arguments.inbound);
    if let Some(to) = arguments.to {
        call.address = to;
    }
    let journey = own.config.follow(&call);
    let mut servers = Servers::new(&access, arguments, proxy.is_some())?;
    let mut answer = answer::answer(&own, &journey);
    let mut arrives = journey.end.is_ok();
    if !arguments.inbound {
        for target in own.targets(&journey) {
            let mut there = Vec::new();
            for endpoint in target.endpoints.iter().take(MOST_SERVERS) {
                let Some(server) = servers.find(endpoint.address.ip())? else { continue };
                let journey =
                    server.config.follow(&own.call_to(&target, endpoint, &journey.forwarded(&call)));
                arrives &= journey.end.is_ok();
                let mut answer = answer::answer(server, &journey);
                answer["endpoint"] = json!(endpoint.address.to_string());
                answer["proxy"] = json!(server.node);
                there.push(answer);
            }
            answer::add_servers(&mut answer, &target.name, there);
        }
    }
    Ok((answer, arrives))
}

/// The proxies of servers, as far as they are known or can be asked.
struct Servers<'a> {
    access: &'a Access<'a>,
    known: Vec<KnownProxy>,
    /// Where pods can be looked up by their addresses.
    cluster: Option<Cluster>,
}

impl<'a> Servers<'a> {
    fn new(access: &'a Access<'a>, arguments: &Arguments, in_kubernetes: bool) -> anyhow::Result<Self> {
        let mut known = Vec::new();
        for server in &arguments.server {
            let is_file = server == "-" || std::path::Path::new(server).exists();
            let source = if is_file { Source::File(server) } else { Source::Address(server) };
            known.push(KnownProxy::read(&access.get(&source, DUMP)?)?);
        }
        let cluster =
            if in_kubernetes && known.is_empty() { Some(Cluster::connect(access.kube)?) } else { None };
        Ok(Self { access, known, cluster })
    }

    /// The proxy of the workload with this address, if there is one.
    fn find(&mut self, address: std::net::IpAddr) -> anyhow::Result<Option<&KnownProxy>> {
        if let Some(at) = self.known.iter().position(|proxy| proxy.address == Some(address)) {
            return Ok(Some(&self.known[at]));
        }
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let Some((pod, namespace)) = cluster.pod_at(address)? else { return Ok(None) };
        // A pod without a proxy does not answer; the way of the request ends at it all the same.
        let dump = cluster.ask_pod(&namespace, &pod, self.access.port, http::Method::GET, DUMP);
        let Some(read) = dump.ok().and_then(|dump| KnownProxy::read(&dump).ok()) else { return Ok(None) };
        self.known.push(read);
        Ok(self.known.last())
    }
}
