//! Gateway API Inference Extension.

use canopus_base::labels::Labels;

use crate::decode::complete;
use crate::gateway_api::GROUP;
use crate::macros::{object, open_enum};
use crate::resource::Resource;
use crate::value::Condition;

/// Model servers among which an endpoint picker chooses.
pub type InferencePool = Resource<InferencePoolSpec, InferencePoolStatus>;

open_enum! {
    /// What happens when the endpoint picker does not answer.
    FailureMode {
        /// Requests fail.
        FailClose = "FailClose",
        /// Requests go to any endpoint.
        FailOpen = "FailOpen",
    }
}

object! {
    /// What a pool is.
    InferencePoolSpec {
        /// Its pods.
        selector: PoolSelector,
        /// Their ports.
        target_ports: Vec<PoolPort>,
        /// What they speak: `http` or `kubernetes.io/h2c`.
        app_protocol: Box<str> = "http".into(),
        /// Who chooses among them.
        endpoint_picker_ref: EndpointPickerRef = EndpointPickerRef::default(),
    }

    /// The pods of a pool.
    PoolSelector {
        /// Labels that must have these values.
        match_labels: Labels,
    }

    /// A port.
    PoolPort {
        /// The number.
        number: u16,
    }

    /// Who chooses among the endpoints of a pool.
    EndpointPickerRef {
        /// Its group; empty for a Service.
        group: Box<str>,
        /// Its kind.
        kind: Box<str> = "Service".into(),
        /// Its name.
        name: Box<str>,
        /// Its port.
        port: Option<PoolPort>,
        /// What happens when it does not answer.
        failure_mode: FailureMode = FailureMode::FailClose,
    }

    /// What became of a pool.
    InferencePoolStatus {
        /// Under each parent.
        parents: Vec<PoolParentStatus>,
    }

    /// What a controller made of a pool under one parent.
    PoolParentStatus {
        /// The parent.
        parent_ref: PoolParent = PoolParent::default(),
        /// The controller.
        controller_name: Option<Box<str>>,
        /// Observations.
        conditions: Vec<Condition>,
    }

    /// The parent of a pool.
    PoolParent {
        /// Its group.
        group: Box<str> = GROUP.into(),
        /// Its kind.
        kind: Box<str> = "Gateway".into(),
        /// Its namespace; absent means the pool's.
        namespace: Option<Box<str>>,
        /// Its name.
        name: Box<str>,
    }
}

complete!(InferencePoolSpec, InferencePoolStatus);
