//! The settings of the mesh: given by files at the start, or by a ConfigMap at any time.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use canopus_api::kube::ConfigMap;
use canopus_api::{Decoded, Kind, ObjectKey, mesh_config};
use canopus_base::labels::Selector;
use canopus_base::labels::selector::SelectorError;
use canopus_mesh::world::MeshSettings;
use canopus_proto::istio::mesh::v1alpha1::{LabelSelector, MeshConfig, MeshNetworks};
use canopus_runtime::flags::SHARED_MESH_CONFIG;
use canopus_sources::Update;
use canopus_sources::kubernetes::Selection;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// The key of a ConfigMap under which the mesh configuration stands.
const MESH: &str = "mesh";

/// The key of a ConfigMap under which the networks stand.
const NETWORKS: &str = "meshNetworks";

/// Keeps the settings of the mesh.
pub(crate) struct SettingsKeeper {
    settings: MeshSettings,
    /// ConfigMaps and what they say, the later over the earlier. Empty if there are files.
    maps: Vec<(ObjectKey, Given)>,
    files: Files,
    selection: watch::Sender<Selection>,
}

/// The files of the mesh configuration and what they said last.
struct Files {
    mesh: PathBuf,
    networks: PathBuf,
    said: (Option<String>, Option<String>),
}

impl Files {
    fn read(&self) -> anyhow::Result<(Option<String>, Option<String>)> {
        Ok((read(&self.mesh)?, read(&self.networks)?))
    }

    /// What the files say, laid over the defaults.
    fn settings(
        &self,
        said: &(Option<String>, Option<String>),
    ) -> anyhow::Result<(MeshConfig, MeshNetworks)> {
        let in_file = |path: &Path| format!("{}", path.display());
        let mut mesh = mesh_config::default_mesh_config();
        let mut networks = mesh_config::default_networks();
        if let Some(text) = &said.0 {
            let decoded = mesh_config::apply_usable(text, &mesh).with_context(|| in_file(&self.mesh))?;
            mesh = told(decoded, &in_file(&self.mesh));
        }
        if let Some(text) = &said.1 {
            let decoded = mesh_config::read_networks(text).with_context(|| in_file(&self.networks))?;
            networks = told(decoded, &in_file(&self.networks));
        }
        Ok((mesh, networks))
    }
}

/// What a ConfigMap says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    mesh: Option<Box<str>>,
    networks: Option<Box<str>>,
}

impl SettingsKeeper {
    /// Starts with what the files say. What no file says, ConfigMaps may.
    pub(crate) fn new(
        mut settings: MeshSettings,
        mesh_file: &Path,
        networks_file: &Path,
    ) -> anyhow::Result<Self> {
        let mut files = Files { mesh: mesh_file.into(), networks: networks_file.into(), said: (None, None) };
        files.said = files.read()?;
        (settings.mesh, settings.networks) = files.settings(&files.said)?;
        let maps = if files.said.0.is_some() { Vec::new() } else { map_keys(&settings) };
        let selection = watch::Sender::new(selection(&settings.mesh));
        let maps = maps.into_iter().map(|key| (key, Given::default())).collect();
        Ok(Self { settings, maps, files, selection })
    }

    /// Looks at the files again; the settings, if they are others now. A file that is gone or broken changes nothing.
    pub(crate) fn reread(&mut self) -> Option<&MeshSettings> {
        let now = self.files.read().ok().filter(|now| now.0.is_some() && *now != self.files.said)?;
        // Reported once, whether the file can be used or not.
        self.files.said = now;
        // Without a mesh file the maps have the say.
        if !self.maps.is_empty() {
            return None;
        }
        match self.files.settings(&self.files.said) {
            Ok((mesh, networks)) => self.replace(mesh, networks),
            Err(error) => {
                error!("the mesh configuration stays as it was: {error:#}");
                None
            }
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> &MeshSettings {
        &self.settings
    }

    /// Takes note that nobody stores statuses.
    pub(crate) fn without_stored_statuses(&mut self) {
        self.settings.stores_statuses = false;
    }

    /// The namespaces that are seen, now and from now on.
    pub(crate) fn selection(&self) -> watch::Receiver<Selection> {
        self.selection.subscribe()
    }

    /// Looks for ConfigMaps in an update; the settings, if they are others now.
    ///
    /// What cannot be read is reported, and the settings stay as they were.
    pub(crate) fn take(&mut self, update: &Update) -> Option<&MeshSettings> {
        let cluster = Arc::clone(&self.settings.cluster);
        let mut changed = false;
        for (key, given) in &mut self.maps {
            if let Some(object) = update.changes.get(&(Arc::clone(&cluster), key.clone())) {
                let map = object.as_ref().and_then(|object| object.get::<ConfigMap>());
                let text = |name| map.and_then(|map| map.spec.get(name)).map(Box::from);
                let now = Given { mesh: text(MESH), networks: text(NETWORKS) };
                changed |= *given != now;
                *given = now;
            }
        }
        if !changed {
            return None;
        }
        let (mesh, networks) = match self.read_maps() {
            Ok(read) => read,
            Err(error) => {
                error!("the mesh configuration stays as it was: {error:#}");
                return None;
            }
        };
        self.replace(mesh, networks)
    }

    fn replace(&mut self, mesh: MeshConfig, networks: MeshNetworks) -> Option<&MeshSettings> {
        if mesh == self.settings.mesh && networks == self.settings.networks {
            return None;
        }
        info!("the mesh configuration has changed");
        let selected = selection(&mesh);
        self.selection.send_if_modified(|current| {
            let different = *current != selected;
            *current = selected;
            different
        });
        self.settings.mesh = mesh;
        self.settings.networks = networks;
        Some(&self.settings)
    }

    fn read_maps(&self) -> anyhow::Result<(MeshConfig, MeshNetworks)> {
        let mut mesh = mesh_config::default_mesh_config();
        let mut networks = mesh_config::default_networks();
        for (key, given) in &self.maps {
            let place = key.to_string();
            if let Some(text) = &given.mesh {
                mesh = told(mesh_config::apply_usable(text, &mesh).with_context(|| place.clone())?, &place);
            }
            if let Some(text) = &given.networks {
                networks = told(mesh_config::read_networks(text).with_context(|| place.clone())?, &place);
            }
        }
        Ok((mesh, networks))
    }
}

/// The text of a file; nothing if there is no such file.
fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| format!("{}", path.display())),
    }
}

fn told<T>(decoded: Decoded<T>, place: &str) -> T {
    for problem in &decoded.ignored {
        warn!("{place}: {problem}");
    }
    decoded.value
}

/// The ConfigMaps that hold mesh configuration: one that revisions share, and over it the revision's own.
fn map_keys(settings: &MeshSettings) -> Vec<ObjectKey> {
    let own = match &*settings.revision {
        "" | "default" => "istio".to_owned(),
        revision => format!("istio-{revision}"),
    };
    let shared = settings.flags.get(SHARED_MESH_CONFIG);
    let names = [shared, own.as_str()].into_iter().filter(|name| !name.is_empty());
    names.map(|name| ObjectKey::new(Kind::ConfigMap, &settings.system_namespace, name)).collect()
}

/// Parity: with a selector that cannot be read, everything is seen.
fn selection(mesh: &MeshConfig) -> Selection {
    match mesh.discovery_selectors.iter().map(selector).collect::<Result<_, _>>() {
        Ok(selectors) => Selection::new(selectors),
        Err(error) => {
            error!("discoverySelectors of the mesh configuration: {error}; all namespaces are seen");
            Selection::default()
        }
    }
}

fn selector(written: &LabelSelector) -> Result<Selector, SelectorError> {
    let labels = written.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let expressions = written.match_expressions.iter().map(|expression| {
        let values = expression.values.iter().map(String::as_str).collect();
        (expression.key.as_str(), expression.operator.as_str(), values)
    });
    Selector::from_parts(labels, expressions)
}

#[cfg(test)]
mod tests {
    use canopus_api::Object;
    use canopus_runtime::flags::Flags;

    use super::*;

    fn keeper(shared: &str, revision: &str) -> SettingsKeeper {
        let settings = MeshSettings {
            flags: Arc::new(Flags::read(&[("SHARED_MESH_CONFIG", shared)])),
            revision: revision.into(),
            ..MeshSettings::default()
        };
        SettingsKeeper::new(settings, Path::new("/nowhere"), Path::new("/nowhere")).unwrap()
    }

    fn map(name: &str, mesh: &str) -> Update {
        let mut map = ConfigMap::new("istio-system", name, Default::default());
        map.spec.data.insert(MESH.into(), mesh.into());
        let object = Object::from(map);
        let mut update = Update::default();
        update.changes.insert(("Kubernetes".into(), object.key()), Some(object));
        update
    }

    #[test]
    fn config_map_changes_settings_and_selection() {
        let mut keeper = keeper("", "");
        let selection = keeper.selection();
        assert!(selection.borrow().is_everything());
        let mesh = "trustDomain: shop\ndiscoverySelectors: [{matchLabels: {mesh: 'on'}}]";
        assert_eq!(keeper.take(&map("istio", mesh)).unwrap().trust_domain(), "shop");
        assert!(!selection.borrow().is_everything());
        assert!(keeper.take(&map("istio", mesh)).is_none(), "nothing changed");
        assert!(keeper.take(&map("other", "trustDomain: other")).is_none());
        assert!(keeper.take(&map("istio", "trustDomain: [")).is_none(), "the last good one stays");
        assert!(keeper.take(&map("istio", "connectTimeout: 1us")).is_none(), "nor what cannot be used");
        assert_eq!(keeper.settings().trust_domain(), "shop");

        let mut gone = map("istio", "");
        for object in gone.changes.values_mut() {
            *object = None;
        }
        assert_eq!(keeper.take(&gone).unwrap().trust_domain(), "cluster.local");
    }

    #[test]
    fn revision_has_its_own_map_over_the_shared_one() {
        let mut keeper = keeper("shared", "blue");
        assert!(keeper.take(&map("istio", "trustDomain: other")).is_none());
        keeper.take(&map("istio-blue", "trustDomain: own")).unwrap();
        keeper.take(&map("shared", "trustDomain: shared\nrootNamespace: root")).unwrap();
        let settings = keeper.settings();
        assert_eq!((settings.trust_domain(), settings.root_namespace()), ("own", "root"));
    }

    #[test]
    fn file_leaves_no_say_to_maps() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("mesh");
        std::fs::write(&path, "trustDomain: file").unwrap();
        let mut keeper = SettingsKeeper::new(MeshSettings::default(), &path, Path::new("/nowhere")).unwrap();
        assert!(keeper.take(&map("istio", "trustDomain: map")).is_none());
        assert_eq!(keeper.settings().trust_domain(), "file");
    }

    #[test]
    fn replaced_file_counts_and_a_broken_one_does_not() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("mesh");
        std::fs::write(&path, "trustDomain: file").unwrap();
        let mut keeper = SettingsKeeper::new(MeshSettings::default(), &path, Path::new("/nowhere")).unwrap();
        assert!(keeper.reread().is_none(), "nothing changed");
        std::fs::write(&path, "trustDomain: [").unwrap();
        assert!(keeper.reread().is_none());
        std::fs::write(&path, "trustDomain: other").unwrap();
        assert_eq!(keeper.reread().unwrap().trust_domain(), "other");
        std::fs::remove_file(&path).unwrap();
        assert!(keeper.reread().is_none());
        assert_eq!(keeper.settings().trust_domain(), "other");
    }
}
