use std::fs;

use canopus_api::mesh_config;
use clap::Parser;
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    sources: SourceArgs,
}

fn plan(arguments: &[&str], variables: &[(&str, &str)], mesh: &str) -> anyhow::Result<Plan> {
    let command = Command::try_parse_from(["canopusd"].iter().chain(arguments))?;
    let mesh = mesh_config::apply(mesh, &mesh_config::default_mesh_config())?.value;
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let variables: BTreeMap<String, String> = variables.iter().map(owned).collect();
    Plan::new(&command.sources, &Flags::read(&variables), &mesh)
}

fn error(arguments: &[&str], mesh: &str) -> String {
    plan(arguments, &[], mesh).unwrap_err().to_string()
}

fn kubeconfig() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join(".kube")).unwrap();
    let path = folder.path().join(".kube/config");
    fs::write(&path, "").unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn directory_without_a_cluster_is_enough() {
    let plan = plan(&["--configDir=mesh"], &[], "{}").unwrap();
    assert_eq!(plan, Plan { files: vec!["mesh".into()], ..Plan::default() });
}

#[test]
fn nothing_to_read_is_refused() {
    assert!(error(&[], "{}").contains("--configDir"));
    assert!(error(&["--registries=Mock"], "{}").contains("--configDir"));
    assert!(error(&["--registries=Eureka", "--configDir=mesh"], "{}").contains("\"Eureka\" is not known"));
    assert!(error(&["--kubeconfig=/nowhere"], "{}").contains("/nowhere"));
}

#[test]
fn cluster_is_found_where_the_surroundings_say() {
    let (home, path) = kubeconfig();
    let home = home.path().to_str().unwrap();
    let named = Some(Access::Kubeconfig(path.clone().into()));
    let found = |arguments: &[&str], variables: &[(&str, &str)]| {
        plan(arguments, variables, "{}").ok().and_then(|plan| plan.kubernetes).map(|(access, _)| access)
    };
    assert_eq!(found(&["--kubeconfig", &path], &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]), named);
    let variable = format!("/nowhere:{path}");
    assert_eq!(found(&[], &[("KUBECONFIG", &variable), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")]), named);
    let pod = [("KUBECONFIG", "/var/run/secrets/remote/config"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
    assert_eq!(found(&[], &pod), Some(Access::Pod));
    assert_eq!(found(&[], &[("HOME", home)]), named);
    assert_eq!(found(&["--configDir=mesh"], &[("HOME", home)]), None, "nobody named a cluster");
}

#[test]
fn directory_takes_the_place_of_kubernetes_for_configuration_alone() {
    let (_home, path) = kubeconfig();
    let kinds = |arguments: &[&str], mesh: &str| {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--kubeconfig", &path]).collect();
        plan(&arguments, &[], mesh).unwrap().kubernetes.unwrap().1
    };
    let follows =
        |kinds: &BTreeSet<Kind>| [Kind::Service, Kind::VirtualService].map(|kind| kinds.contains(&kind));
    assert_eq!(follows(&kinds(&[], "{}")), [true, true]);
    assert_eq!(follows(&kinds(&["--configDir=mesh"], "{}")), [true, false]);
    assert_eq!(follows(&kinds(&["--registries=Consul"], "{}")), [false, true]);
    let both = "configSources: [{address: 'fs:///etc/mesh'}, {address: 'k8s://'}]";
    assert_eq!(follows(&kinds(&["--configDir=ignored"], both)), [true, true]);
    assert_eq!(plan(&[], &[], both).unwrap().files, [PathBuf::from("/etc/mesh")]);
    assert!(error(&[], "configSources: [{address: 'https://far:1'}]").contains("https://far:1"));
}

#[test]
fn other_control_planes_are_sources_beside_files() {
    let mesh = |more: &str| {
        format!(
            "configSources: [{{address: 'fs:///etc/mesh'}}, {{address: 'xds://east.example.com:15012'{more}}}]"
        )
    };
    let addresses = |more: &str| -> Vec<String> {
        let plan = plan(&["--registries=Mock"], &[], &mesh(more)).unwrap();
        assert_eq!(plan.files, [PathBuf::from("/etc/mesh")]);
        plan.upstreams.into_iter().map(|upstream| upstream.address).collect()
    };
    assert_eq!(addresses(""), ["east.example.com:15012"]);
    assert_eq!(addresses(", tlsSettings: {mode: SIMPLE, sni: east}"), ["east.example.com:15012"]);
    for (settings, remedy) in [
        ("mode: ISTIO_MUTUAL", "MUTUAL with files"),
        ("mode: MUTUAL", "clientCertificate and privateKey"),
        ("mode: SIMPLE, credentialName: east", "mount the Secret"),
        ("mode: SIMPLE, insecureSkipVerify: true", "caCertificates"),
    ] {
        let error = error(&["--registries=Mock"], &mesh(&format!(", tlsSettings: {{{settings}}}")));
        assert!(error.contains("east.example.com"), "{error}");
        let chain =
            plan(&["--registries=Mock"], &[], &mesh(&format!(", tlsSettings: {{{settings}}}"))).unwrap_err();
        assert!(format!("{chain:#}").contains(remedy), "{chain:#}");
    }
    assert!(error(&[], "configSources: [{address: 'xds://far'}]").contains("HOST:PORT"));
}

#[test]
fn ignored_resources_are_not_followed() {
    let (_home, path) = kubeconfig();
    let variables = [
        ("PILOT_IGNORE_RESOURCES", "*.istio.io"),
        ("PILOT_INCLUDE_RESOURCES", "wasmplugins.extensions.istio.io"),
    ];
    let kinds = plan(&["--kubeconfig", &path], &variables, "{}").unwrap().kubernetes.unwrap().1;
    assert!(!kinds.contains(&Kind::VirtualService) && kinds.contains(&Kind::WasmPlugin));
    assert!(kinds.contains(&Kind::Service) && kinds.contains(&Kind::KubernetesGateway));
}
