//! Automatic registration: the WorkloadEntry of a virtual machine that connects with a WorkloadGroup.

use canopus_api::annotations::AUTO_REGISTRATION_GROUP;
use canopus_api::istio::{WorkloadEntry, WorkloadGroup};
use canopus_api::{Meta, labels as known};
use canopus_base::labels::Labels;
use canopus_runtime::flags::{Flags, PILOT_ENABLE_SIDECAR_LISTENING_HBONE};

use crate::proxy::Proxy;
use crate::workload::HEALTH_CHECKED;

/// The maximum length of an object name.
const MAX_NAME: usize = 253;

/// The label with the locality of a proxy. An entry has a field for it.
const LOCALITY_LABEL: &str = "istio-locality";

/// The name of the WorkloadEntry of a proxy; `None` if it does not register.
pub fn entry_name(proxy: &Proxy) -> Option<String> {
    let metadata = &proxy.metadata;
    let address = proxy.id.addresses.first()?;
    if metadata.auto_register_group.is_empty() || metadata.namespace.is_empty() {
        return None;
    }
    let mut name = format!("{}-{}", metadata.auto_register_group, address.to_string().replace(':', "-"));
    if !metadata.network.is_empty() {
        name = format!("{name}-{}", metadata.network);
    }
    // The end of the name distinguishes machines.
    let excess = name.len().saturating_sub(MAX_NAME);
    let start = (excess..name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    Some(name.split_off(start))
}

/// The WorkloadEntry of a proxy that registers with a group; `None` if it does not register.
pub fn entry(flags: &Flags, proxy: &Proxy, group: &WorkloadGroup) -> Option<WorkloadEntry> {
    let metadata = &proxy.metadata;
    let name = entry_name(proxy)?;
    let mut spec = group.spec.template.clone().unwrap_or_default();
    spec.address = proxy.id.addresses.first()?.to_string();
    let metadata_of_group = group.spec.metadata.as_ref();
    // Labels of the machine override those of the group, which override those of the template.
    spec.labels.extend(metadata_of_group.into_iter().flat_map(|meta| meta.labels.clone()));
    let own = metadata.labels.iter().filter(|(key, _)| *key != LOCALITY_LABEL);
    spec.labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if flags.get(PILOT_ENABLE_SIDECAR_LISTENING_HBONE) && metadata.enable_hbone.0 {
        spec.labels.entry(known::TUNNEL.name.to_owned()).or_insert_with(|| "http".to_owned());
    }
    if !metadata.network.is_empty() {
        spec.network.clone_from(&metadata.network);
    }
    let locality = proxy.locality.to_string();
    if !locality.is_empty() {
        spec.locality = locality;
    }
    let mut annotations = Labels::new();
    annotations.insert(AUTO_REGISTRATION_GROUP.name, group.meta.name.clone());
    for (key, value) in metadata_of_group.into_iter().flat_map(|meta| &meta.annotations) {
        annotations.insert(key.as_str(), value.as_str());
    }
    if metadata.proxy_config.as_ref().is_some_and(|config| config.readiness_probe.is_some()) {
        annotations.insert(HEALTH_CHECKED, "true");
    }
    let labels: Labels = spec.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut entry = WorkloadEntry::new(&metadata.namespace, &name, spec);
    entry.meta = Meta { labels, annotations, ..entry.meta };
    Some(entry)
}

/// Whether the agent of a machine reports its health into its entry, be it that the reports count or not.
pub fn is_health_checked(entry: &Meta) -> bool {
    entry.annotation(HEALTH_CHECKED).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_proto::envoy::config::core::v3::Node;
    use canopus_proto::google::protobuf::{Struct, Value};

    use super::*;

    fn machine(group: &str) -> Proxy {
        let labels = Struct { fields: [("version".to_owned(), Value::from("v2"))].into() };
        let fields = BTreeMap::from([
            ("NAMESPACE".to_owned(), Value::from("ns")),
            ("NETWORK".to_owned(), Value::from("net")),
            ("AUTO_REGISTER_GROUP".to_owned(), Value::from(group)),
            ("LABELS".to_owned(), labels.into()),
        ]);
        let id = "sidecar~fd00::1~vm.ns~ns.svc.cluster.local".to_owned();
        Proxy::new(&Node { id, metadata: Some(Struct { fields }), ..Default::default() }, None).unwrap()
    }

    #[test]
    fn machine_is_described_by_its_group_and_by_itself() {
        let text = "{apiVersion: networking.istio.io/v1, kind: WorkloadGroup, metadata: {name: g, namespace: ns},
          spec: {metadata: {labels: {app: vm, version: v1}}, template: {serviceAccount: vm, ports: {http: 8080}}}}";
        let object = decode_documents(text, &Limits::default(), Options::strict()).remove(0).unwrap().value;
        let group = object.get::<WorkloadGroup>().unwrap();
        let entry = entry(&Flags::defaults(), &machine("g"), group).unwrap();
        assert_eq!(&*entry.meta.name, "g-fd00--1-net");
        assert_eq!((entry.spec.address.as_str(), entry.spec.network.as_str()), ("fd00::1", "net"));
        assert_eq!((entry.meta.label("app"), entry.meta.label("version")), (Some("vm"), Some("v2")));
        assert_eq!(entry.spec.ports["http"], 8080);
    }

    #[test]
    fn machine_of_no_group_does_not_register() {
        assert_eq!(entry_name(&machine("")), None);
    }
}
