//! `canopus init`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use canopus_base::yaml;
use canopus_local::mesh_file::{FILE_NAME, MeshFile};
use serde_json::{Value, json};

use super::finish;

/// Write mesh.yaml for programs.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus init web:8080='./web --verbose' api:9000/grpc=./api
  canopus init --gateway 8080 web:3000='node server.js'")]
pub(crate) struct Arguments {
    /// A program: NAME[:PORT[/PROTOCOL]]=COMMAND. The gateway leads to the first with a port.
    #[arg(value_name = "PROGRAM", required = true)]
    programs: Vec<String>,
    /// Port of this machine on which the mesh is reached.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    gateway: u16,
    /// Directory that becomes the mesh.
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    finish(write(arguments))
}

fn write(arguments: &Arguments) -> Result<String> {
    let programs: Vec<Program> =
        arguments.programs.iter().map(|text| Program::parse(text)).collect::<Result<_>>()?;
    let mesh = mesh_file(&programs, arguments.gateway)?;
    // What is written must be what `canopus up` reads.
    if let Err(problems) = MeshFile::parse(mesh.as_bytes()) {
        let problems: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect();
        bail!("{}", problems.join("\n"));
    }
    let config = arguments.directory.join("config");
    fs::create_dir_all(&config).with_context(|| config.display().to_string())?;
    create(&arguments.directory.join(FILE_NAME), &mesh)?;
    let mut words =
        format!("{} written; `canopus up` runs it\n", arguments.directory.join(FILE_NAME).display());
    if let Some(front) = programs.iter().find(|program| program.port.is_some()) {
        let path = config.join("gateway.yaml");
        create(&path, &gateway(front, arguments.gateway)?)?;
        words.push_str(&format!(
            "{} leads from http://localhost:{} to {}\n",
            path.display(),
            arguments.gateway,
            front.name
        ));
    }
    Ok(words)
}

struct Program {
    name: String,
    port: Option<u16>,
    protocol: Option<String>,
    command: String,
}

impl Program {
    fn parse(text: &str) -> Result<Self> {
        let shape = || format!("{text:?}: expected NAME[:PORT[/PROTOCOL]]=COMMAND, such as web:8080=./web");
        let (place, command) = text.split_once('=').with_context(shape)?;
        let (name, port) = place.split_once(':').map_or((place, None), |(name, port)| (name, Some(port)));
        let (port, protocol) = match port.map(|port| port.split_once('/').unwrap_or((port, ""))) {
            Some((port, protocol)) => (Some(port.parse().ok().with_context(shape)?), protocol),
            None => (None, ""),
        };
        let protocol = (!protocol.is_empty()).then(|| protocol.to_uppercase());
        Ok(Self { name: name.to_owned(), port, protocol, command: command.to_owned() })
    }
}

fn mesh_file(programs: &[Program], gateway: u16) -> Result<String> {
    let workload = |program: &Program| {
        let mut workload = json!({"name": program.name, "command": program.command});
        if let Some(port) = program.port {
            workload["port"] = port.into();
        }
        if let Some(protocol) = &program.protocol {
            workload["protocol"] = protocol.as_str().into();
        }
        workload
    };
    let workloads: Vec<Value> = programs.iter().map(workload).collect();
    let mut mesh = json!({"workloads": workloads});
    if programs.iter().any(|program| program.port.is_some()) {
        mesh["gateways"] = json!([{"name": "gateway", "ports": [gateway]}]);
    }
    let text = yaml::to_string(&mesh)?;
    Ok(format!("# A mesh on one machine: `canopus up` runs it, docs/local-mesh.md explains it.\n{text}"))
}

/// A Gateway and a route from it to a workload.
fn gateway(front: &Program, port: u16) -> Result<String> {
    let server = json!({"hosts": ["*"], "port": {"name": "http", "number": port, "protocol": "HTTP"}});
    let gateway = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "gateway", "namespace": "default"},
        "spec": {"selector": {"istio": "gateway"}, "servers": [server]},
    });
    let route = json!({"route": [{"destination": {"host": front.name}}]});
    let service = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": front.name, "namespace": "default"},
        "spec": {"gateways": ["gateway"], "hosts": ["*"], "http": [route]},
    });
    Ok(format!("{}---\n{}", yaml::to_string(&gateway)?, yaml::to_string(&service)?))
}

/// Writes a file that is not there yet.
fn create(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{} is there already; remove it first", path.display())
        }
        _ => anyhow::anyhow!("{}: {error}", path.display()),
    })?;
    Ok(file.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_with_port_and_protocol() {
        let program = Program::parse("api:9000/grpc=./api --a=b").unwrap();
        assert_eq!(
            (program.name.as_str(), program.port, program.command.as_str()),
            ("api", Some(9000), "./api --a=b")
        );
        assert_eq!(program.protocol.as_deref(), Some("GRPC"));
        assert_eq!(Program::parse("job=./job").unwrap().port, None);
        for wrong in ["web", "web:x=./web", "web:99999=./web"] {
            assert!(Program::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn written_file_is_a_mesh_file() {
        let programs =
            [Program::parse("web:8080=./web").unwrap(), Program::parse("db:6000/tcp=./db").unwrap()];
        let text = mesh_file(&programs, 8000).unwrap();
        let mesh = MeshFile::parse(text.as_bytes()).unwrap();
        assert_eq!((mesh.workloads.len(), mesh.gateways[0].ports[0].host), (2, 8000));
        assert!(gateway(&programs[0], 8000).unwrap().contains("number: 8000"));
    }

    #[test]
    fn file_that_is_there_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let arguments = Arguments {
            programs: vec!["web:8080=./web".to_owned()],
            gateway: 8080,
            directory: directory.path().to_owned(),
        };
        write(&arguments).unwrap();
        let error = write(&arguments).unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
    }
}
