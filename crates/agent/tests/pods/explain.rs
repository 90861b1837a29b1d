//! What `canopus explain` says of requests, against what Envoys do with them.
//!
//! Worlds of routes, subsets and policies are drawn from seeds. Each request is explained from the dumps of the client's and the
//! servers' Envoys, then made by the client's application; status, cluster and endpoint have to be those that were foretold.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{eventually, http};
use serde_json::Value;
use tempfile::TempDir;

use crate::network::{Application, Network};
use crate::plane::Plane;
use crate::pod::{Pod, Workload, program};
use crate::world::workload_entry;

const PATIENCE: Duration = Duration::from_secs(40);
const WORLDS: u64 = 8;
const REQUESTS: usize = 30;
const HOSTS: usize = 4;

const CLIENT: Workload = Workload { name: "frontend", account: "frontend", number: 2 };
const SERVERS: [(Workload, &str); 2] = [
    (Workload { name: "reviews", account: "reviews", number: 3 }, "v1"),
    (Workload { name: "ratings", account: "ratings", number: 4 }, "v2"),
];

/// What stays the same: services, access logs, and nothing outside.
fn services() -> String {
    let mut objects = "
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: default, namespace: istio-system}
spec: {accessLogging: [{providers: [{name: envoy}]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ['*/*']}]}
"
    .to_owned();
    // The last has nobody behind it, and the one after it only tells which world is in force.
    for host in 0..=HOSTS {
        let app = if host < HOSTS - 1 { "backend" } else { "nobody" };
        let _ = write!(
            objects,
            "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: h{host}, namespace: shop}}
spec:
  hosts: [h{host}.shop.mesh]
  addresses: [10.96.0.{}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{number: 80, name: http, protocol: HTTP, targetPort: 8080}}]
  workloadSelector: {{labels: {{app: {app}}}}}
",
            20 + host
        );
    }
    for (workload, version) in SERVERS {
        let entry = workload_entry(&workload)
            .replace("{app: reviews,", &format!("{{app: backend, version: {version},"));
        let _ = write!(objects, "---\n{entry}");
    }
    objects
}

/// Numbers that depend on the seed alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap_or_default()
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }
}

/// The objects of a world. Of two markers for one host the earlier one counts, so it tells that the world before is gone.
fn objects(seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(7919) + 1);
    let mut objects = format!(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: marker-{seed}, namespace: shop}}
spec: {{hosts: [h{HOSTS}.shop.mesh], http: [{{directResponse: {{status: 200, body: {{string: 'world {seed}'}}}}}}]}}
"
    );
    for host in 0..HOSTS {
        if dice.chance(85) {
            let routes: Vec<String> = (0..=dice.roll(4)).map(|_| route(&mut dice, host)).collect();
            let _ = write!(
                objects,
                "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: h{host}, namespace: \
                 shop}}\nspec:\n  hosts: [h{host}.shop.mesh]\n  http:\n{}",
                routes.concat()
            );
        }
        let modes = [
            "",
            "  trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}\n",
            "",
            "  trafficPolicy: {tls: {mode: DISABLE}}\n",
        ];
        let _ = write!(
            objects,
            "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: h{host}, namespace: \
             shop}}\nspec:\n  host: h{host}.shop.mesh\n{}  subsets:\n  - {{name: v1, labels: \
             {{version: v1}}}}\n  - {{name: v2, labels: {{version: v2}}}}\n  - {{name: v3, labels: {{version: v3}}}}\n",
            dice.pick(&modes)
        );
    }
    if dice.chance(40) {
        objects.push_str(
            "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: \
             shop}\nspec: {mtls: {mode: STRICT}}\n",
        );
    }
    for at in 0..dice.roll(4) {
        objects.push_str(&policy(&mut dice, at));
    }
    objects
}

fn route(dice: &mut Dice, host: usize) -> String {
    let matches: Vec<String> = (0..dice.roll(3)).map(|_| format!("{{{}}}", matched(dice))).collect();
    let matched =
        if matches.is_empty() { String::new() } else { format!("match: [{}], ", matches.join(", ")) };
    let destination = |dice: &mut Dice| {
        let subset = dice.pick(&["", ", subset: v1", ", subset: v2", ", subset: v3", ", subset: ghost"]);
        format!("destination: {{host: h{host}.shop.mesh{subset}}}")
    };
    let action = match dice.roll(10) {
        0 => "redirect: {uri: /elsewhere, redirectCode: 302}".to_owned(),
        1 => "directResponse: {status: 418}".to_owned(),
        2 => format!(
            "fault: {{abort: {{percentage: {{value: 100}}, httpStatus: 555}}}}, route: [{{{}}}]",
            destination(dice)
        ),
        3 | 4 => {
            format!("route: [{{{}, weight: 40}}, {{{}, weight: 60}}]", destination(dice), destination(dice))
        }
        5 => format!("rewrite: {{uri: /c/rewritten}}, route: [{{{}}}]", destination(dice)),
        6 => format!(
            "headers: {{request: {{set: {{x-user: jason}}, remove: [x-other]}}}}, route: [{{{}}}]",
            destination(dice)
        ),
        _ => format!("route: [{{{}}}]", destination(dice)),
    };
    format!("  - {{{matched}{action}}}\n")
}

fn matched(dice: &mut Dice) -> String {
    let mut terms = BTreeSet::new();
    for _ in 0..=dice.roll(2) {
        terms.insert(match dice.roll(7) {
            0 => "uri: {prefix: /a}",
            1 => "uri: {exact: /a/b}",
            2 => "uri: {regex: '/[bc]/.*'}",
            3 => "headers: {x-user: {exact: jason}}",
            4 => "withoutHeaders: {x-user: {prefix: ja}}",
            5 => "method: {exact: POST}",
            _ => "queryParams: {q: {exact: '1'}}",
        });
    }
    // Two conditions on one field would be one.
    let uris: Vec<&str> = terms.iter().copied().filter(|term| term.starts_with("uri")).skip(1).collect();
    terms.retain(|term| !uris.contains(term));
    let ignore = if dice.chance(20) && terms.iter().any(|term| term.contains("uri: {prefix")) {
        ", ignoreUriCase: true"
    } else {
        ""
    };
    format!("{}{ignore}", terms.into_iter().collect::<Vec<_>>().join(", "))
}

fn policy(dice: &mut Dice, at: usize) -> String {
    let action = dice.pick(&["DENY", "ALLOW"]);
    let app = dice.pick(&["reviews", "ratings"]);
    let from = dice.pick(&[
        "",
        "from: [{source: {principals: [cluster.local/ns/shop/sa/frontend]}}], ",
        "from: [{source: {notPrincipals: [cluster.local/ns/shop/sa/frontend]}}], ",
        "from: [{source: {namespaces: [sh*]}}], ",
        "from: [{source: {ipBlocks: [10.78.0.0/30]}}], ",
        "from: [{source: {serviceAccounts: [shop/frontend]}}], ",
    ]);
    let to = dice.pick(&[
        "to: [{operation: {methods: [GET, POST]}}]",
        "to: [{operation: {paths: ['/a*', '*/x']}}]",
        "to: [{operation: {notPaths: ['/a/b'], methods: [GET]}}]",
        "to: [{operation: {hosts: [h0.shop.mesh, h1.shop.mesh]}}]",
        "to: [{operation: {ports: ['8080']}}]",
        "to: [{operation: {paths: ['/c/{*}']}}]",
        "when: [{key: 'request.headers[x-user]', values: ['ja*']}]",
        "when: [{key: source.principal, notValues: ['cluster.local/ns/shop/sa/other']}]",
    ]);
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: p{at}, namespace: \
         shop}}\nspec: {{selector: {{matchLabels: {{app: {app}}}}}, action: {action}, rules: [{{{from}{to}}}]}}\n"
    )
}

/// A request of the client's application.
#[derive(Debug)]
struct Asked {
    method: &'static str,
    /// The service whose address it goes to.
    service: usize,
    host: String,
    path: &'static str,
    user: Option<&'static str>,
    tag: String,
}

impl Asked {
    fn draw(dice: &mut Dice, tag: String) -> Self {
        let service = dice.roll(HOSTS);
        let host = match dice.roll(8) {
            0 => format!("h{service}.shop.mesh:80"),
            1 => format!("H{service}.shop.mesh"),
            2 => "elsewhere.example".to_owned(),
            _ => format!("h{service}.shop.mesh"),
        };
        let paths = ["/", "/a", "/a/b", "/A/b", "/c?q=1", "/a?q=2&x=1", "/b/x", "/c/d", "/c/d/e?q=1"];
        Self {
            method: dice.pick(&["GET", "GET", "POST", "DELETE"]),
            service,
            host,
            path: dice.pick(&paths),
            user: [None, Some("jason"), Some("jane"), Some("tom")][dice.roll(4)],
            tag,
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([10, 96, 0, u8::try_from(20 + self.service).unwrap_or_default()], 80))
    }

    /// The arguments of `canopus explain`.
    fn arguments(&self, dumps: &[PathBuf]) -> Vec<String> {
        let mut arguments: Vec<String> = ["explain", "-o", "json", "--to"].map(str::to_owned).into();
        arguments.push(self.address().ip().to_string());
        arguments.extend(["-f".to_owned(), dumps[0].display().to_string()]);
        for server in &dumps[1..] {
            arguments.extend(["--server".to_owned(), server.display().to_string()]);
        }
        if let Some(user) = self.user {
            arguments.extend(["-H".to_owned(), format!("x-user: {user}")]);
        }
        arguments.extend([self.method.to_owned(), format!("http://{}{}", self.host, self.path)]);
        arguments
    }

    async fn send(&self) -> Result<u16> {
        let mut request = http::request(self.method.parse()?, self.address(), self.path)
            .host(&self.host)
            .header("user-agent", &self.tag);
        if let Some(user) = self.user {
            request = request.header("x-user", user);
        }
        Ok(request.send().await?.status.as_u16())
    }
}

/// The program that was built beside the agent.
fn canopus(arguments: &[String]) -> Result<Output> {
    let program = program().with_file_name("canopus");
    ensure!(program.exists(), "{} is missing; run `cargo build --workspace --bins`", program.display());
    Ok(Command::new(program).args(arguments).output()?)
}

fn json(arguments: &[String]) -> Result<Value> {
    let output = canopus(arguments)?;
    let parsed = serde_json::from_slice(&output.stdout);
    parsed.with_context(|| format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

struct Mesh {
    // Fields are dropped in this order: pods before their network.
    client: Pod,
    servers: Vec<Pod>,
    plane: Plane,
    _applications: Vec<Application>,
    network: Network,
    dumps: TempDir,
}

impl Mesh {
    fn start() -> Result<Self> {
        let mut network = Network::new()?;
        let plane = Plane::start(network.node(), &services(), &[])?;
        plane.write("world.yaml", &objects(0))?;
        let (mut servers, mut applications) = (Vec::new(), Vec::new());
        for (workload, version) in SERVERS {
            let namespace = network.pod(workload.number)?;
            applications.push(namespace.serve(version, 8080)?);
            servers.push(Pod::start(namespace, workload, &plane, &[])?);
        }
        let client = Pod::start(network.pod(CLIENT.number)?, CLIENT, &plane, &[])?;
        for pod in servers.iter().chain([&client]) {
            pod.wait_ready().with_context(|| format!("canopusd:\n{}", plane.log()))?;
        }
        let dumps = tempfile::tempdir()?;
        Ok(Self { client, servers, plane, _applications: applications, network, dumps })
    }

    /// Puts a world in force, and waits until every proxy has it.
    fn enter(&self, seed: u64) -> Result<()> {
        self.plane.write("world.yaml", &objects(seed))?;
        let marker = SocketAddr::from(([10, 96, 0, u8::try_from(20 + HOSTS)?], 80));
        let host = format!("h{HOSTS}.shop.mesh");
        self.client.namespace.run(async || {
            eventually("the new world", PATIENCE, async || {
                let answer = http::request(http::Method::GET, marker, "/").host(&host).send().await?;
                ensure!(answer.body == format!("world {seed}"), "{}: {}", answer.status, answer.body);
                Ok(())
            })
            .await
        })?;
        let canopus = program().with_file_name("canopus");
        let mut command = self.network.node().command(canopus.to_str().context("path")?);
        let waited = command.args(["wait", "--daemon", "http://127.0.0.1:15014"]).output()?;
        ensure!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
        Ok(())
    }

    /// The dumps of the client's Envoy and the servers', as files.
    fn dump(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for pod in [&self.client].into_iter().chain(&self.servers) {
            let file = self.dumps.path().join(format!("{}.json", pod.workload.name));
            fs::write(&file, pod.admin("/config_dump?include_eds")?)?;
            files.push(file);
        }
        Ok(files)
    }

    /// The lines of the client's access log, which Envoy writes every second.
    fn log_with(&self, tags: &[String]) -> Result<String> {
        let file: &Path = self.client.directory();
        let file = file.join("agent.log");
        self.client.namespace.run(async || {
            eventually("the access log", PATIENCE, async || {
                let text = fs::read_to_string(&file)?;
                let missing: Vec<_> =
                    tags.iter().filter(|tag| !text.contains(&format!("\"{tag}\""))).collect();
                ensure!(missing.is_empty(), "{} requests are not logged: {missing:?}", missing.len());
                Ok(text)
            })
            .await
        })
    }
}

/// The status that was foretold for a request that went to this cluster and endpoint.
fn foretold(answer: &Value, cluster: &str, endpoint: &str) -> Result<u64> {
    let named = |list: &Value, key: &str, name: &str| {
        list.as_array().and_then(|all| all.iter().find(|one| one[key] == name).cloned())
    };
    if let Some(status) = answer["status"].as_u64() {
        return Ok(status);
    }
    // A cluster that does not exist is not logged.
    let (key, value) = if cluster.is_empty() { ("flag", "NC") } else { ("name", cluster) };
    let cluster = named(&answer["clusters"], key, value).context("the cluster was not foretold")?;
    if let Some(status) = cluster["status"].as_u64() {
        return Ok(status);
    }
    let server = named(&cluster["servers"], "endpoint", endpoint).context("the endpoint was not foretold")?;
    // The application answers all requests that reach it.
    Ok(server["status"].as_u64().unwrap_or(200))
}

/// Explained requests end as was said, at the cluster and the endpoint that were said.
pub(crate) fn agrees_with_envoy() -> Result<()> {
    let mesh = Mesh::start()?;
    let mut asked = Vec::new();
    for seed in 1..=WORLDS {
        mesh.enter(seed).with_context(|| format!("world {seed}:\n{}", objects(seed)))?;
        let dumps = mesh.dump()?;
        let mut dice = Dice(seed << 32);
        for number in 0..REQUESTS {
            let request = Asked::draw(&mut dice, format!("explain-{seed}-{number}-"));
            let answer = json(&request.arguments(&dumps))?;
            let status = mesh.client.namespace.run(async || request.send().await)?;
            asked.push((seed, request, answer, status));
        }
    }
    let tags: Vec<String> = asked.iter().map(|(_, request, ..)| request.tag.clone()).collect();
    let log = mesh.log_with(&tags)?;
    let (mut wrong, mut ends) = (Vec::new(), BTreeSet::new());
    for (seed, request, answer, status) in &asked {
        let tag = format!("\"{}\"", request.tag);
        let line = log.lines().find(|line| line.contains(&tag)).context("a line")?;
        let logged = json(&["explain", "-o", "json", "--access-log", line].map(str::to_owned))?;
        let (cluster, endpoint) = (logged["cluster"].as_str(), logged["endpoint"].as_str());
        let known = answer["clusters"].as_array().context("clusters")?;
        // What ends before it is sent is logged with the cluster that it would have gone to.
        let is_foretold = |name: &str| known.is_empty() || known.iter().any(|one| one["name"] == name);
        let fits = match foretold(answer, cluster.unwrap_or_default(), endpoint.unwrap_or_default()) {
            Ok(foretold) => foretold == u64::from(*status) && cluster.is_none_or(is_foretold),
            Err(_) => false,
        };
        ends.insert(*status);
        if !fits {
            wrong.push(format!(
                "world {seed}, {request:?}\n{answer:#}\nwas {status}: {line}\n{}",
                objects(*seed)
            ));
        }
    }
    ensure!(asked.len() >= 200, "only {} requests", asked.len());
    ensure!(ends.len() >= 6, "the worlds are too much alike: only {ends:?}");
    ensure!(wrong.is_empty(), "{} of {} are wrong, such as\n{}", wrong.len(), asked.len(), wrong[0]);
    Ok(())
}
