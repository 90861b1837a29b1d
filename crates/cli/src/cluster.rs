//! Kubernetes, reached as kubectl reaches it: contexts, impersonation, port-forward.
//!
//! Commands are short and ask one thing after another, so this hides the asynchronous client: a [`Cluster`] owns a runtime of
//! one thread, and each method blocks until there is an answer. A port-forward lives as long as the call that needs it, so
//! none is left behind when the command ends or is interrupted.

mod fill;
mod write;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use canopus_api::Kind;
use canopus_base::duration::Duration as GoDuration;
use canopus_base::json;
use canopus_base::tree::{Limits, Node};
use canopus_sources::kubernetes::{Cluster as Server, RateLimit};
use http::{HeaderName, HeaderValue, Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use tokio::runtime::Runtime;

pub(crate) use self::write::Refusal;
use crate::{fetch, names, progress};

/// Where kubectl looks when nothing is configured.
const FALLBACK_SERVER: &str = "http://localhost:8080";

/// An installer asks about hundreds of objects one after another; the API server's own limits protect it.
const INSTALLER_LIMIT: RateLimit = RateLimit { qps: 200.0, burst: 400 };

/// How to reach the cluster.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct KubeArguments {
    /// Kubernetes configuration file.
    #[arg(short = 'c', long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubernetes configuration context.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// User to act as, a regular one or a service account.
    #[arg(long = "as", global = true, value_name = "USER")]
    act_as: Option<String>,
    /// Group to act as; may be repeated.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    act_as_group: Vec<String>,
    /// UID to act as.
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    act_as_uid: Option<String>,
    /// How long the Kubernetes API server may take.
    #[arg(long, global = true, value_name = "DURATION", default_value = "15s")]
    kubeclient_timeout: String,
    /// Accepted and ignored: verbosity of istioctl's Kubernetes client.
    #[arg(long, global = true, hide = true, value_name = "LEVEL")]
    vklog: Option<String>,
}

impl KubeArguments {
    /// The same for another context.
    pub(crate) fn with_context(&self, context: &str) -> Self {
        Self { context: Some(context.to_owned()), ..self.clone() }
    }

    /// The same with another timeout.
    pub(crate) fn with_timeout(&self, timeout: &str) -> Self {
        Self { kubeclient_timeout: timeout.to_owned(), ..self.clone() }
    }

    /// Whether there is a kubeconfig at all.
    pub(crate) fn is_configured(&self) -> bool {
        self.kubeconfig.is_some() || usual_kubeconfig().is_some()
    }

    /// The API server for commands that are asynchronous themselves: installing, upgrading, tags.
    pub(crate) async fn server(&self) -> anyhow::Result<Server> {
        if !self.is_configured() {
            bail!("no kubeconfig: name one by --kubeconfig, or set $KUBECONFIG");
        }
        let config = self.config().await.context("cannot reach Kubernetes")?;
        let client = Client::try_from(config).context("the Kubernetes client cannot be set up")?;
        Ok(Server::from_client(client, INSTALLER_LIMIT))
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let kubeconfig = match &self.kubeconfig {
            Some(path) => {
                Some(Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?)
            }
            None => usual_kubeconfig(),
        };
        let mut config = match kubeconfig {
            Some(kubeconfig) => {
                let contexts: Vec<String> = kubeconfig.contexts.iter().map(|one| one.name.clone()).collect();
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| {
                    let hint = self.context.as_deref().map(|wanted| names::hint(wanted, &contexts));
                    anyhow!("{error}{}", hint.unwrap_or_default())
                })?
            }
            None if self.context.is_some() => {
                bail!(
                    "there is no kubeconfig, so there is no context {:?}",
                    options.context.unwrap_or_default()
                )
            }
            None => Config::incluster().or_else(|_| FALLBACK_SERVER.parse().map(Config::new))?,
        };
        let timeout = self.kubeclient_timeout.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
        let timeout = timeout.with_context(|| {
            format!("--kubeclient-timeout {}: expected a duration such as 15s", self.kubeclient_timeout)
        })?;
        config.connect_timeout = Some(timeout);
        config.read_timeout = Some(timeout);
        config.headers.extend(self.impersonation()?);
        Ok(config)
    }

    /// The headers by which the API server is asked to act as somebody else.
    fn impersonation(&self) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
        let user = self.act_as.iter().map(|user| ("impersonate-user", user));
        let groups = self.act_as_group.iter().map(|group| ("impersonate-group", group));
        let uid = self.act_as_uid.iter().map(|uid| ("impersonate-uid", uid));
        user.chain(groups)
            .chain(uid)
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).with_context(|| format!("{name}: {value:?}"))?;
                Ok((HeaderName::from_static(name), value))
            })
            .collect()
    }
}

/// The kubeconfig where kubectl looks for it. One without any cluster is as good as none.
fn usual_kubeconfig() -> Option<Kubeconfig> {
    Kubeconfig::read().ok().filter(|kubeconfig| !kubeconfig.clusters.is_empty())
}

/// A cluster. Its methods block.
pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
    url: String,
    default_namespace: String,
    timeout: Duration,
}

impl Cluster {
    /// Prepares to reach a cluster; the first question shows whether it answers.
    pub(crate) fn connect(arguments: &KubeArguments) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let config = runtime.block_on(arguments.config())?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let default_namespace = match config.default_namespace.as_str() {
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        };
        let timeout = config.read_timeout.unwrap_or(Duration::from_secs(15));
        let client = {
            let _entered = runtime.enter();
            Client::try_from(config).context("the Kubernetes client cannot be set up")?
        };
        Ok(Self { runtime, client, url, default_namespace, timeout })
    }

    /// The namespace that is meant: the given one, else that of the context.
    pub(crate) fn namespace(&self, given: &str) -> String {
        if given.is_empty() { self.default_namespace.clone() } else { given.to_owned() }
    }

    /// The object at a path of the API; `None` if there is none.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Option<Node>> {
        let request = Request::get(path).body(Vec::new())?;
        // A timer belongs to the runtime it is made in.
        let _entered = self.runtime.enter();
        let asked = tokio::time::timeout(self.timeout, self.client.request_text(request));
        let answer = self.runtime.block_on(asked);
        let text = match answer {
            Err(_) => bail!("Get \"{}{path}\": no answer within {:?}", self.url, self.timeout),
            Ok(Err(Error::Api(status))) if status.code == 404 => return Ok(None),
            Ok(Err(Error::Api(status))) if status.code == 401 => bail!(
                "{}: {} does not take the credentials of the kubeconfig: they have expired, or are those of another \
                 cluster; log in again, or name another context by --context",
                status.message,
                self.url
            ),
            Ok(Err(Error::Api(status))) => bail!("{}", status.message),
            Ok(Err(error)) => bail!(self.transport(path, &error)),
            Ok(Ok(text)) => text,
        };
        let limits = Limits { max_bytes: text.len(), max_nodes: usize::MAX, ..Limits::default() };
        let node = json::parse(text.as_bytes(), &limits)?;
        Ok(Some(node))
    }

    /// Why nothing came back, in the words of Go's client.
    fn transport(&self, path: &str, error: &Error) -> String {
        let mut causes = vec![error.to_string()];
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let last = causes.last().map(String::as_str).unwrap_or_default();
        let reason = if last.starts_with("Connection refused") {
            let address = self.url.split("://").nth(1).unwrap_or(&self.url);
            format!("dial tcp {address}: connect: connection refused")
        } else {
            last.to_owned()
        };
        let remedy = if self.url == FALLBACK_SERVER {
            "\nNo kubeconfig was found: name one by --kubeconfig or $KUBECONFIG, or read files by --use-kube=false."
        } else {
            ""
        };
        format!("Get \"{}{path}?timeout={}s\": {reason}{remedy}", self.url, self.timeout.as_secs())
    }

    /// Where the API server is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether an object exists.
    pub(crate) fn exists(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<bool> {
        Ok(self.get(&object_path(kind, namespace, name))?.is_some())
    }

    /// An object; the error of a missing one names those with similar names.
    pub(crate) fn find(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Node> {
        if let Some(found) = self.get(&object_path(kind, namespace, name))? {
            return Ok(found);
        }
        let others: Vec<String> = self.list(kind, namespace)?.iter().filter_map(name_of).collect();
        bail!("{} {name:?} not found{}", kind.info().plural, names::hint(name, &others))
    }

    /// The objects of a kind, of one namespace or (if that is empty) of all. There are none if the kind is not installed.
    pub(crate) fn list(&self, kind: Kind, namespace: &str) -> anyhow::Result<Vec<Node>> {
        let info = kind.info();
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let path = format!("{}?limit=500{next}", collection_path(kind, namespace));
            let Some(mut list) = self.get(&path)? else { return Ok(items) };
            let token =
                list.pointer("/metadata/continue").and_then(Node::as_str).unwrap_or_default().to_owned();
            let page =
                list.get_mut("items").and_then(Node::as_list_mut).map(std::mem::take).unwrap_or_default();
            for mut item in page {
                // Items of lists do not say what they are.
                if let Some(map) = item.as_map_mut() {
                    map.insert("apiVersion", canopus_base::tree::Value::from(info.api_version()).into());
                    map.insert("kind", canopus_base::tree::Value::from(info.kind).into());
                }
                items.push(item);
            }
            if token.is_empty() {
                return Ok(items);
            }
            next = format!("&continue={}", crate::daemon::escaped(&token));
        }
    }

    /// The text at a path of the API, such as a log.
    pub(crate) fn text(&self, path: &str) -> anyhow::Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        let _entered = self.runtime.enter();
        let asked = tokio::time::timeout(self.timeout, self.client.request_text(request));
        let answer = self.runtime.block_on(asked).with_context(|| format!("{path}: no answer"))?;
        Ok(answer?)
    }

    /// Leads connections to a port of this machine into a pod until the command is interrupted. The system closes the port
    /// and all connections when the process ends, so that nothing is left behind.
    pub(crate) fn forward(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        listen: &str,
        local_port: u16,
        ready: impl FnOnce(std::net::SocketAddr),
    ) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        self.runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind((listen, local_port))
                .await
                .with_context(|| format!("cannot listen on {listen}:{local_port}; choose another by --port"))?;
            ready(listener.local_addr()?);
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (mut local, _) = accepted?;
                        let (pods, pod) = (pods.clone(), pod.to_owned());
                        connections.spawn(async move {
                            let mut forward = pods.portforward(&pod, &[port]).await?;
                            let mut remote = forward.take_stream(port).context("the port-forward has no stream")?;
                            tokio::io::copy_bidirectional(&mut local, &mut remote).await?;
                            anyhow::Ok(())
                        });
                    }
                    Some(ended) = connections.join_next() => {
                        if let Ok(Err(error)) = ended {
                            crate::output::say(
                                &format!("a connection to pod {pod}.{namespace} ended: {error:#}\n"),
                                std::process::ExitCode::SUCCESS,
                            );
                        }
                    }
                }
            }
        })
    }

    /// The name and namespace of the running pod with this address, if there is one.
    pub(crate) fn pod_at(&self, address: IpAddr) -> anyhow::Result<Option<(String, String)>> {
        let path = format!("{}?fieldSelector=status.podIP={address}", collection_path(Kind::Pod, ""));
        let Some(list) = self.get(&path)? else { return Ok(None) };
        let running = |pod: &&Node| pod.pointer("/status/phase").and_then(Node::as_str) == Some("Running");
        let pods = list.get("items").and_then(Node::as_list).into_iter().flatten();
        let namespace =
            |pod: &Node| pod.pointer("/metadata/namespace").and_then(Node::as_str).map(str::to_owned);
        Ok(pods.filter(running).find_map(|pod| Some((name_of(pod)?, namespace(pod)?))))
    }

    /// Asks a server inside a pod over a port-forward.
    pub(crate) fn ask_pod(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        method: Method,
        path: &str,
    ) -> anyhow::Result<Bytes> {
        self.send_to_pod(namespace, pod, port, method, path, Bytes::new())
    }

    /// As [`Cluster::ask_pod`], with a body.
    pub(crate) fn send_to_pod(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Bytes> {
        let _slow = progress::slow(&format!("asking {pod}.{namespace}"));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let asked = async {
            let mut forward = pods.portforward(pod, &[port]).await?;
            let connection = forward.take_stream(port).context("the port-forward has no stream")?;
            let answer = fetch::request(connection, "localhost", method, path, body).await;
            forward.abort();
            answer
        };
        let _entered = self.runtime.enter();
        let within = tokio::time::timeout(self.timeout, asked);
        self.runtime
            .block_on(within)
            .with_context(|| format!("pod {pod}.{namespace} does not answer on port {port}"))?
            .with_context(|| format!("cannot reach port {port} of pod {pod}.{namespace}"))
    }
}

/// The path of all objects of a kind.
pub(crate) fn collection_path(kind: Kind, namespace: &str) -> String {
    let info = kind.info();
    let version = info.api_version();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    if info.is_namespaced() && !namespace.is_empty() {
        format!("{root}/namespaces/{namespace}/{}", info.plural)
    } else {
        format!("{root}/{}", info.plural)
    }
}

pub(crate) fn object_path(kind: Kind, namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection_path(kind, namespace))
}

/// The name of an object.
pub(crate) fn name_of(object: &Node) -> Option<String> {
    object.pointer("/metadata/name").and_then(Node::as_str).map(str::to_owned)
}
