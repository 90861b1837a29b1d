//! Addresses of ServiceEntries that have none, in their statuses.

use std::any::Any;
use std::sync::Arc;

use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::service::PlannedAddresses;
use canopus_mesh::world::{Objects, settings};
use canopus_runtime::flags::PILOT_ENABLE_IP_AUTOALLOCATE;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Basis, Controller, Plan, Write};
use crate::status_write::{present, status_write};

/// Writes the addresses of ServiceEntries.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceEntryAddressController;

impl Controller for ServiceEntryAddressController {
    fn name(&self) -> &'static str {
        "service-entry-addresses"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<PendingAddresses>(&())?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<PendingAddresses>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<PendingAddresses>(())))
    }
}

/// The statuses whose addresses are not what they should be.
struct PendingAddresses;

impl Query for PendingAddresses {
    const NAME: &'static str = "pending_service_entry_addresses";
    type Key = ();
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        if !settings.flags.get(PILOT_ENABLE_IP_AUTOALLOCATE) {
            return Vec::new();
        }
        let mut writes = Vec::new();
        for (origin, addresses) in ctx.get::<PlannedAddresses>(&()).iter() {
            let Some(seen) = ctx.read::<Objects>(origin).filter(|_| origin.cluster == settings.cluster)
            else {
                continue;
            };
            let mut status = present(&seen);
            if !status.is_object() {
                status = json!({});
            }
            let addresses: Vec<Value> =
                addresses.iter().map(|one| json!({"value": one.value, "host": one.host})).collect();
            match (addresses.is_empty(), status.as_object_mut()) {
                (true, Some(fields)) => drop(fields.remove("addresses")),
                _ => status["addresses"] = addresses.into(),
            }
            writes.extend(status_write(origin, seen, status));
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Change;
    use crate::testing::{plan, world};

    const ENTRY: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec: {hosts: [a.example.com, a.example.org], ports: [{name: tls, number: 443, protocol: TLS}], resolution: DNS}
";

    fn status(documents: &str) -> Option<Value> {
        let writes = plan(&ServiceEntryAddressController, &world(documents)).writes;
        match &writes.first()?.change {
            Change::Status { status, .. } => Some(status.clone()),
            change => panic!("{:?}", Write { target: writes[0].target.clone(), change: change.clone() }),
        }
    }

    #[test]
    fn each_host_gets_an_address_of_both_families_and_keeps_them() {
        let given = status(ENTRY).unwrap();
        let expected = json!({"addresses": [
            {"value": "240.240.0.1", "host": "a.example.com"}, {"value": "2001:2::1", "host": "a.example.com"},
            {"value": "240.240.0.2", "host": "a.example.org"}, {"value": "2001:2::2", "host": "a.example.org"},
        ]});
        assert_eq!(given, expected);
        assert_eq!(status(&format!("{ENTRY}status: {given}")), None);
    }

    #[test]
    fn other_parts_of_the_status_stay_and_stale_addresses_go() {
        let stale = ENTRY.replace("resolution: DNS", "resolution: NONE")
            + "status: {addresses: [{value: 240.240.0.9, host: a.example.com}], conditions: [{type: A, status: 'True'}]}";
        let left = status(&stale).unwrap();
        assert!(left.get("addresses").is_none(), "{left}");
        assert_eq!(left["conditions"][0]["type"], "A");
    }
}
