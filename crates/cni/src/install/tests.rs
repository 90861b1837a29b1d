use super::*;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LIST: &str = r#"{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"bridge"}]}"#;

struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["net.d", "bin", "image", "account"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        let node = Self { root };
        node.write("image/istio-cni", "program");
        node.write("account/token", "first");
        node.write("account/ca.crt", "ca");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn settings(&self) -> InstallSettings {
        InstallSettings {
            network_directory: self.path("net.d"),
            is_chained: true,
            config_mode: 0o600,
            programs: self.path("image"),
            program_targets: vec![self.path("bin")],
            run_directory: self.path("run"),
            kubeconfig_mode: 0o600,
            service_account: self.path("account"),
            api_server: ApiServer { host: "10.0.0.1".into(), port: "443".into(), ..ApiServer::default() },
            plugin: PluginConfig::default().named(),
            ..InstallSettings::default()
        }
    }
}

#[test]
fn installation_is_complete_private_and_gone_after_clean_up() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", LIST);
    let mut installer = Installer::new(node.settings());
    assert_eq!(installer.install().unwrap(), Installed::Complete);
    assert!(node.read("net.d/10-a.conflist").contains("istio-cni"));
    assert_eq!(node.read("bin/istio-cni"), "program");
    let run = Directory::open(&node.path("run")).unwrap();
    assert_eq!(run.mode(KUBECONFIG).unwrap(), 0o600);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(node.path("run")).unwrap().permissions().mode() & 0o777, 0o700);
    installer.clean_up().unwrap();
    assert!(!node.read("net.d/10-a.conflist").contains("istio-cni"));
    assert!(!node.path("bin/istio-cni").exists() && !node.path("run/istio-cni-kubeconfig").exists());
}

#[test]
fn configuration_that_comes_first_later_gets_the_plugin_and_the_other_loses_it() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", LIST);
    let mut installer = Installer::new(node.settings());
    installer.install().unwrap();
    node.write("net.d/05-b.conf", r#"{"type":"ptp"}"#);
    installer.install().unwrap();
    assert_eq!(installer.installed(), Some("05-b.conflist"));
    assert!(!node.path("net.d/05-b.conf").exists());
    assert!(!node.read("net.d/10-a.conflist").contains("istio-cni"));
}

#[test]
fn second_pass_writes_nothing() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", LIST);
    let mut installer = Installer::new(node.settings());
    installer.install().unwrap();
    let stamp = |name: &str| fs::metadata(node.path(name)).unwrap().modified().unwrap();
    let names = ["net.d/10-a.conflist", "bin/istio-cni", "run/istio-cni-kubeconfig"];
    let before = names.map(stamp);
    std::thread::sleep(Duration::from_millis(20));
    installer.install().unwrap();
    assert_eq!(names.map(stamp), before);
}

#[test]
fn copies_that_were_cut_short_are_removed() {
    let node = Node::new();
    node.write("bin/istio-cni.tmp.77", "half");
    node.write("net.d/10-a.conflist", LIST);
    Installer::new(node.settings()).install().unwrap();
    assert!(!node.path("bin/istio-cni.tmp.77").exists());
}

#[tokio::test]
async fn tokens_and_configurations_are_followed() {
    let node = Node::new();
    let mut installer = Installer::new(node.settings());
    let ready = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ready);
    let metrics = Registry::new();
    let steps = async {
        let until = async |what: &dyn Fn() -> bool| {
            while !what() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        until(&|| node.read("run/istio-cni-kubeconfig").contains("token: first")).await;
        assert!(!ready.load(Ordering::Relaxed), "there is no configuration yet");
        node.write("net.d/10-a.conflist", LIST);
        until(&|| ready.load(Ordering::Relaxed)).await;
        node.write("account/token", "second");
        until(&|| node.read("run/istio-cni-kubeconfig").contains("token: second")).await;
        node.write("net.d/10-a.conflist", LIST);
        until(&|| node.read("net.d/10-a.conflist").contains("istio-cni")).await;
        fs::remove_file(node.path("bin/istio-cni")).unwrap();
        until(&|| node.path("bin/istio-cni").exists()).await;
    };
    let run = installer.run(&metrics, |is_ready| flag.store(is_ready, Ordering::Relaxed));
    tokio::select! {
        () = run => unreachable!("it runs for ever"),
        () = steps => {}
        () = tokio::time::sleep(Duration::from_secs(20)) => panic!("not followed in time"),
    }
    assert!(metrics.encode().contains("istio_cni_installs_total{result=\"SUCCESS\"}"));
}
