//! How the processes of a mesh are called: control plane, packet rules, agents with their proxies, programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use canopus_identity::token::{self, Grant};
use rustls_pki_types::UnixTime;
use serde_json::{Value, json};

use crate::launch;
use crate::mesh_file::MeshFile;
use crate::network;
use crate::objects;
use crate::plan::{Mode, PROXY_GROUP, Plan, Pod, Proxy, Role};
use crate::process::Specification;
use crate::programs::Programs;
use crate::state::State;

/// The name of the control plane's certificate.
const CONTROL_PLANE_NAME: &str = "istiod.istio-system.svc";

/// Tokens live for a day and are renewed long before.
pub(crate) const TOKEN_RENEWAL: Duration = Duration::from_secs(8 * 3600);

/// Ports of the proxy that packet rules leave alone.
const UNCAPTURED: &str = "15020,15021,15090";

/// A mesh with everything that its processes need to know.
#[derive(Clone, Debug)]
pub(crate) struct Components {
    pub(crate) plan: Plan,
    pub(crate) state: State,
    pub(crate) programs: Programs,
    pub(crate) certificate_lifetime: Option<canopus_base::duration::Duration>,
    /// The user and group that own the mesh's directory; programs run as them.
    pub(crate) owner: (u32, u32),
}

impl Components {
    /// Writes the files that the control plane reads.
    pub(crate) fn write_files(&self, file: &MeshFile, directory: &Path) -> Result<()> {
        let objects = self.state.objects();
        fs::write(objects.join("mesh.yaml"), objects::render(&self.plan)?).context("objects")?;
        std::os::unix::fs::symlink(directory.join(&file.config), objects.join("config")).context("config")?;
        let mut mesh_config = json!({"defaultProviders": {"metrics": ["prometheus"]}});
        merge(&mut mesh_config, &file.mesh_config);
        fs::write(self.mesh_config(), serde_json::to_string_pretty(&mesh_config)?)
            .context("mesh configuration")?;
        if self.plan.mode == Mode::Namespaces {
            let machine = fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
            fs::write(self.name_service(), launch::name_service(&machine)).context("nsswitch.conf")?;
        }
        for pod in &self.plan.pods {
            self.write_pod_files(pod).with_context(|| pod.name.clone())?;
        }
        Ok(())
    }

    fn mesh_config(&self) -> PathBuf {
        self.state.plane().join("mesh-config.json")
    }

    /// Programs that run as other users must be able to read it, and the state's directory is closed to them.
    fn name_service(&self) -> PathBuf {
        self.state.root().join("nsswitch.conf")
    }

    fn resolver(&self, pod: &Pod) -> PathBuf {
        self.state.pod(&pod.name).join("resolv.conf")
    }

    fn write_pod_files(&self, pod: &Pod) -> Result<()> {
        let directory = self.state.pod(&pod.name);
        fs::create_dir_all(directory.join("var/run/secrets/tokens"))?;
        fs::create_dir_all(directory.join("var/run/secrets/istio"))?;
        let search = format!("{}.svc.cluster.local svc.cluster.local", pod.namespace);
        let resolver =
            format!("nameserver {}\nsearch {search}\noptions ndots:1\n", crate::plan::NODE_ADDRESS);
        fs::write(self.resolver(pod), resolver)?;
        Ok(())
    }

    /// Gives a pod's agent the root certificate and a new token.
    pub(crate) async fn write_credentials(&self, pod: &Pod) -> Result<()> {
        let issuer = token::open_directory(&self.state.authority(), "istio-ca").await?;
        let grant = Grant {
            namespace: pod.namespace.clone(),
            service_account: pod.service_account.clone(),
            lifetime: token::LONGEST,
            single_use: false,
        };
        let secrets = self.state.pod(&pod.name).join("var/run/secrets");
        fs::write(secrets.join("tokens/istio-token"), issuer.issue(&grant, UnixTime::now())?)?;
        let root = self.state.root_certificate();
        fs::copy(&root, secrets.join("istio/root-cert.pem")).with_context(|| root.display().to_string())?;
        Ok(())
    }

    fn namespace(&self, name: &str) -> Option<PathBuf> {
        (self.plan.mode == Mode::Namespaces).then(|| network::path(name))
    }

    /// The control plane.
    pub(crate) fn control_plane(&self) -> Specification {
        let mut command = words(&self.programs.canopusd);
        command.extend(
            [
                "discovery",
                "--registries=Mock",
                "--snapshot=",
                "--httpsAddr=",
                "--grpcAddr=",
                "--monitoringAddr=",
            ]
            .map(str::to_owned),
        );
        command.push(format!("--config={}", self.state.objects().display()));
        command.push(format!("--meshConfig={}", self.mesh_config().display()));
        command.push(format!("--httpAddr={}", self.plan.debug));
        command.push(format!("--secureGRPCAddr={}", self.plan.control_plane));
        Specification {
            name: "canopusd".to_owned(),
            command,
            environment: BTreeMap::from([("POD_NAMESPACE".to_owned(), "istio-system".to_owned())]),
            directory: self.state.plane(),
            namespace: self.namespace(&self.plan.node_namespace),
            ..Specification::default()
        }
    }

    /// The command that captures a pod's traffic; pods without programs beside their proxy have none.
    pub(crate) fn capture(&self, pod: &Pod) -> Option<Specification> {
        let is_captured = self.plan.mode == Mode::Namespaces && pod.proxy.as_ref()?.role == Role::Sidecar;
        let group = PROXY_GROUP.to_string();
        let mut command = words(&self.programs.agent);
        command.extend(
            ["istio-iptables", "-u", &group, "-b", "*", "-i", "*", "-d", UNCAPTURED].map(str::to_owned),
        );
        command.extend(["--redirect-dns", "--capture-all-dns"].map(str::to_owned));
        is_captured.then(|| Specification {
            name: format!("{}/rules", pod.name),
            command,
            directory: self.state.pod(&pod.name),
            namespace: self.namespace(&pod.network_namespace),
            ..Specification::default()
        })
    }

    /// The agent of a pod, which starts Envoy.
    pub(crate) fn agent(&self, pod: &Pod, proxy: &Proxy) -> Specification {
        let role = match proxy.role {
            Role::Sidecar => "sidecar",
            Role::Router => "router",
        };
        let mut command = words(&self.programs.agent);
        command.extend(
            ["proxy", role, "--proxyLogLevel=warning", "--log_output_level=default:info"].map(str::to_owned),
        );
        let config = json!({
            "discoveryAddress": self.plan.control_plane,
            "binaryPath": self.programs.envoy,
            "concurrency": 1,
            "proxyAdminPort": proxy.admin,
            "statusPort": proxy.status,
            "terminationDrainDuration": "1s",
        });
        let labels = Value::from(objects::proxy_labels(&self.plan, pod));
        let mut environment: BTreeMap<String, String> = [
            ("PROXY_CONFIG", config.to_string()),
            ("POD_NAME", pod.name.clone()),
            ("POD_NAMESPACE", pod.namespace.clone()),
            ("SERVICE_ACCOUNT", pod.service_account.clone()),
            ("INSTANCE_IP", pod.address.to_string()),
            ("ISTIOD_SAN", CONTROL_PLANE_NAME.to_owned()),
            ("ISTIO_META_CLUSTER_ID", "Kubernetes".to_owned()),
            ("ISTIO_META_WORKLOAD_NAME", pod.workload.clone()),
            ("ISTIO_META_MESH_ID", self.plan.mesh.clone()),
            ("ISTIO_METAJSON_LABELS", labels.to_string()),
            ("ECC_SIGNATURE_ALGORITHM", "ECDSA".to_owned()),
            ("CLOUD_PLATFORM", "none".to_owned()),
            ("CANOPUS_ENVOY_RESTARTS", "3".to_owned()),
        ]
        .map(|(name, text)| (name.to_owned(), text))
        .into();
        let mode = match (self.plan.mode, proxy.role) {
            (Mode::Namespaces, Role::Sidecar) => {
                environment.insert("ISTIO_META_DNS_CAPTURE".to_owned(), "true".to_owned());
                "REDIRECT"
            }
            (Mode::Namespaces, Role::Router) => "NONE",
            (Mode::Loopback, _) => {
                environment.insert("ENVOY_STATUS_PORT".to_owned(), proxy.health.to_string());
                environment.insert("ENVOY_PROMETHEUS_PORT".to_owned(), proxy.metrics.to_string());
                "NONE"
            }
        };
        if proxy.role == Role::Sidecar {
            environment.insert("ISTIO_META_INTERCEPTION_MODE".to_owned(), mode.to_owned());
        }
        if let Some(lifetime) = &self.certificate_lifetime {
            environment.insert("SECRET_TTL".to_owned(), lifetime.to_string());
        }
        Specification {
            name: format!("{}/proxy", pod.name),
            command,
            environment,
            directory: self.state.pod(&pod.name),
            namespace: self.namespace(&pod.network_namespace),
            group: (self.plan.mode == Mode::Namespaces).then_some(PROXY_GROUP),
            ..Specification::default()
        }
    }

    /// The program of a pod, as the owner of the mesh's directory.
    pub(crate) fn program(&self, pod: &Pod) -> Option<Specification> {
        let program = pod.program.as_ref()?;
        let is_captured = self.plan.mode == Mode::Namespaces && pod.proxy.is_some();
        let files = is_captured.then(|| launch::pod_files(&self.resolver(pod), &self.name_service()));
        let is_root = nix::unistd::geteuid().is_root();
        let mut command = vec![program.command.program.clone()];
        command.extend(program.command.arguments.iter().cloned());
        Some(Specification {
            name: pod.name.clone(),
            command,
            environment: program.environment.clone(),
            directory: program.directory.clone(),
            namespace: self.namespace(&pod.network_namespace),
            files: files.unwrap_or_default(),
            user: is_root.then_some(self.owner.0),
            group: is_root.then_some(self.owner.1),
        })
    }
}

/// The user and group that own a directory.
pub(crate) fn owner(directory: &Path) -> Result<(u32, u32)> {
    let metadata = fs::metadata(directory).with_context(|| directory.display().to_string())?;
    Ok((metadata.uid(), metadata.gid()))
}

fn words(program: &Path) -> Vec<String> {
    vec![program.to_string_lossy().into_owned()]
}

/// Puts fields over those of another map, map by map.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (base, over) => *base = over.clone(),
    }
}
