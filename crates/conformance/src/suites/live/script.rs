//! The recorded actions, played in order, with what was counted around each.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, ensure};
use canopus_api::{Object, Options};
use canopus_base::tree::Node;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_xds::types;
use serde_json::{Value as Json, json};

use super::client::Client;
use super::plane::{Identity, Plane};
use super::world::World;

/// A step that is done to a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    Connect,
    ConnectGateway,
    ConnectAndNack,
    ConfigPush,
    ConfigPushNoop,
    ConfigDelete,
    EndpointPush,
    EndpointPushBack,
    ServiceCreate,
    ServiceDelete,
    ForcedPush,
    CreateCertificate(Csr),
    Validate(Review),
    DuplicateSubsets,
    PodWithoutService,
    NamespaceCreate,
    Disconnect,
    DisconnectAll,
}

/// What the certificate authority is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Csr {
    Good,
    Unauthenticated,
    TooLong,
    Malformed,
}

/// What the validation webhook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Review {
    Valid { dry_run: bool },
    Invalid { dry_run: bool },
    UnknownTopLevel,
    WrongType,
    Delete,
    Malformed,
    EmptyBody,
    ContentType,
}

/// In the order they were recorded.
const ACTIONS: [(&str, Action); 30] = [
    ("connect", Action::Connect),
    ("connect-gateway", Action::ConnectGateway),
    ("connect-and-nack", Action::ConnectAndNack),
    ("config-push", Action::ConfigPush),
    ("config-push-noop", Action::ConfigPushNoop),
    ("config-delete", Action::ConfigDelete),
    ("endpoint-push", Action::EndpointPush),
    ("endpoint-push-back", Action::EndpointPushBack),
    ("service-create", Action::ServiceCreate),
    ("service-delete", Action::ServiceDelete),
    ("forced-push", Action::ForcedPush),
    ("csr-ok", Action::CreateCertificate(Csr::Good)),
    ("csr-no-auth", Action::CreateCertificate(Csr::Unauthenticated)),
    ("csr-bad", Action::CreateCertificate(Csr::Malformed)),
    ("csr-ttl", Action::CreateCertificate(Csr::TooLong)),
    ("validate-pass", Action::Validate(Review::Valid { dry_run: false })),
    ("validate-pass-dry-run", Action::Validate(Review::Valid { dry_run: true })),
    ("validate-fail", Action::Validate(Review::Invalid { dry_run: false })),
    ("validate-fail-dry-run", Action::Validate(Review::Invalid { dry_run: true })),
    ("validate-unknown-toplevel", Action::Validate(Review::UnknownTopLevel)),
    ("validate-conversion-error", Action::Validate(Review::WrongType)),
    ("validate-delete", Action::Validate(Review::Delete)),
    ("validate-malformed", Action::Validate(Review::Malformed)),
    ("validate-empty-body", Action::Validate(Review::EmptyBody)),
    ("validate-content-type", Action::Validate(Review::ContentType)),
    ("invalid-duplicate-subsets", Action::DuplicateSubsets),
    ("pod-without-service", Action::PodWithoutService),
    ("namespace-create", Action::NamespaceCreate),
    ("disconnect", Action::Disconnect),
    ("disconnect-all", Action::DisconnectAll),
];

impl Action {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        ACTIONS.iter().find(|(own, _)| *own == name).map(|(_, action)| *action)
    }
}

type Series = BTreeMap<String, f64>;

/// What was counted.
pub(crate) struct Script {
    /// Before anything happened.
    pub(crate) start: Series,
    around: BTreeMap<&'static str, (Series, Series)>,
}

impl Script {
    /// Plays every action to a control plane in a world.
    pub(crate) fn play(world: &World) -> anyhow::Result<Self> {
        let plane = Plane::start(world, &[])?;
        let start = read(&plane);
        let mut stage = Stage { plane, world, clients: Vec::new() };
        let mut around = BTreeMap::new();
        for (name, action) in ACTIONS {
            let before = read(&stage.plane);
            stage.act(action).with_context(|| name)?;
            around.insert(name, (before, read(&stage.plane)));
        }
        Ok(Self { start, around })
    }

    /// What was counted before and after an action.
    pub(crate) fn around(&self, name: &str) -> Option<(&Series, &Series)> {
        self.around.get(name).map(|(before, after)| (before, after))
    }
}

struct Stage<'a> {
    plane: Plane,
    world: &'a World,
    clients: Vec<Client>,
}

impl Stage<'_> {
    fn act(&mut self, action: Action) -> anyhow::Result<()> {
        match action {
            // Sidecar, gateway, and the sidecar that rejects: the order of the recording is another.
            Action::Connect => self.connect(0)?,
            Action::ConnectGateway => self.connect(2)?,
            Action::ConnectAndNack => self.connect(1)?,
            Action::ConfigPush => self.set(route())?,
            Action::ConfigPushNoop => self.set(route())?,
            Action::ConfigDelete => self.remove(&route())?,
            Action::EndpointPush => self.ready(false)?,
            Action::EndpointPushBack => self.ready(true)?,
            Action::ServiceCreate => self.plane.update(vec![decode(service())?, decode(slice())?], &[])?,
            Action::ServiceDelete => {
                let gone = [decode(service())?.key(), decode(slice())?.key()];
                self.plane.update(Vec::new(), &gone)?;
            }
            Action::ForcedPush => {
                let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
                self.plane.get("GET", "/debug/adsz?push=true", peer, None)?;
            }
            Action::DuplicateSubsets => self.set(json!({
                "apiVersion": "networking.istio.io/v1",
                "kind": "DestinationRule",
                "metadata": {"name": "cart-again", "namespace": "shop"},
                "spec": {"host": "cart", "subsets": [{"name": "v1", "labels": {"version": "v1"}}]},
            }))?,
            Action::CreateCertificate(csr) => self.create_certificate(csr)?,
            Action::Validate(review) => self.validate(review)?,
            Action::PodWithoutService => {
                let mut slice = slice();
                slice["metadata"] = json!({
                    "name": "orphan-slice", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"},
                });
                slice["endpoints"] = json!([{
                    "addresses": ["10.217.9.9"],
                    "conditions": {"ready": true},
                    "targetRef": {"kind": "Pod", "namespace": "shop", "name": "orphan"},
                }]);
                self.set(slice)?;
            }
            Action::NamespaceCreate => {
                self.set(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}}))?;
            }
            Action::Disconnect => drop(self.clients.remove(0)),
            Action::DisconnectAll => self.clients.clear(),
        }
        for client in &mut self.clients {
            client.look()?;
        }
        Ok(())
    }

    fn connect(&mut self, proxy: usize) -> anyhow::Result<()> {
        let mut proxy = self.world.proxies.get(proxy).context("no such proxy")?.clone();
        // Where metrics were recorded, nobody asked for extensions.
        proxy.subscriptions.retain(|(type_url, _)| type_url != types::EXTENSION);
        self.clients.push(self.plane.connect(&proxy)?);
        Ok(())
    }

    fn set(&self, document: Json) -> anyhow::Result<()> {
        self.plane.update(vec![decode(document)?], &[])
    }

    /// Whether the call succeeds is part of what is counted.
    fn create_certificate(&self, csr: Csr) -> anyhow::Result<()> {
        let identity = Identity { namespace: "shop".to_owned(), account: "frontend".to_owned() };
        let text = match csr {
            Csr::Malformed => "garbage".to_owned(),
            _ => {
                rcgen::CertificateParams::default().serialize_request(&rcgen::KeyPair::generate()?)?.pem()?
            }
        };
        // A hundred million seconds are more than the 90 days that the authority allows.
        let seconds = if csr == Csr::TooLong { 99_999_999 } else { 0 };
        let request = IstioCertificateRequest {
            csr: text,
            validity_duration: seconds,
            ..IstioCertificateRequest::default()
        };
        let caller = (csr != Csr::Unauthenticated).then_some(&identity);
        let answered = self.plane.create_certificate(caller, request)?;
        ensure!(answered.is_ok() == (csr == Csr::Good), "{csr:?}: {answered:?}");
        Ok(())
    }

    fn validate(&self, review: Review) -> anyhow::Result<()> {
        let (mut object, mut content_type) = (route(), "application/json");
        let (mut operation, mut dry_run) = ("CREATE", false);
        match review {
            Review::Valid { dry_run: dry } => dry_run = dry,
            Review::Invalid { dry_run: dry } => {
                dry_run = dry;
                // Without hosts it would be a delegate.
                object["spec"] = json!({});
            }
            Review::UnknownTopLevel => object["specification"] = json!({}),
            Review::WrongType => object["spec"]["hosts"] = json!("frontend"),
            Review::Delete => operation = "DELETE",
            Review::Malformed => return self.plane.validate(content_type, "{".to_owned()),
            Review::EmptyBody => return self.plane.validate(content_type, String::new()),
            Review::ContentType => content_type = "text/plain",
        }
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"},
                "resource": {"group": "networking.istio.io", "version": "v1", "resource": "virtualservices"},
                "operation": operation,
                "dryRun": dry_run,
                "object": object,
            },
        });
        self.plane.validate(content_type, review.to_string())
    }

    fn remove(&self, document: &Json) -> anyhow::Result<()> {
        self.plane.update(Vec::new(), &[decode(document.clone())?.key()])
    }

    /// A pod of two services becomes ready or not, and its slices say so.
    fn ready(&self, ready: bool) -> anyhow::Result<()> {
        let mut changed = Vec::new();
        for object in &self.world.objects {
            let mut document = object.to_node().to_json();
            let is_pod = matches!(object, Object::Pod(pod) if &*pod.meta.name == "cart-2");
            let mut touched = is_pod;
            if is_pod {
                let status = if ready { "True" } else { "False" };
                document["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
            }
            let endpoints = document.get_mut("endpoints").and_then(Json::as_array_mut);
            for endpoint in endpoints.into_iter().flatten() {
                if endpoint["targetRef"]["name"] == "cart-2" {
                    endpoint["conditions"] = json!({"ready": ready, "serving": ready, "terminating": false});
                    touched = true;
                }
            }
            if touched {
                changed.push(decode(document)?);
            }
        }
        self.plane.update(changed, &[])
    }
}

fn decode(document: Json) -> anyhow::Result<Object> {
    let decoded = Object::decode(&Node::from(document), Options::watch());
    Ok(decoded.map_err(|error| anyhow!("{error}"))?.value)
}

fn route() -> Json {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "frontend", "namespace": "shop"},
        "spec": {"hosts": ["frontend"], "http": [{"route": [{"destination": {"host": "frontend"}}], "timeout": "3s"}]},
    })
}

fn service() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "fresh", "namespace": "shop"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.117.1.9", "ports": [{"name": "http", "port": 80}]},
    })
}

fn slice() -> Json {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": "IPv4",
        "metadata": {
            "name": "fresh-slice",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "fresh"},
        },
        "endpoints": [],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

/// Every series without buckets and sums.
fn read(plane: &Plane) -> Series {
    let text = plane.metrics.encode();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        let counted = !name.ends_with("_bucket") && !name.ends_with("_sum");
        counted.then(|| Some((series.to_owned(), value.parse().ok()?))).flatten()
    });
    pairs.collect()
}
