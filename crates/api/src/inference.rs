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
        /// Selects the pods that serve the model.
        selector: PoolSelector,
        /// Ports on which each selected pod serves.
        target_ports: Vec<PoolPort>,
        /// What they speak: `http` or `kubernetes.io/h2c`.
        app_protocol: Box<str> = "http".into(),
        /// The endpoint picker, which chooses among the pods.
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

    /// Refers to the service that chooses among the endpoints of a pool.
    EndpointPickerRef {
        /// Group of the endpoint picker; empty for a Service.
        group: Box<str>,
        /// Kind of the endpoint picker.
        kind: Box<str> = "Service".into(),
        /// Name of the endpoint picker.
        name: Box<str>,
        /// Port of the endpoint picker.
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
        /// Group of the parent.
        group: Box<str> = GROUP.into(),
        /// Kind of the parent.
        kind: Box<str> = "Gateway".into(),
        /// Namespace of the parent; absent means the pool's.
        namespace: Option<Box<str>>,
        /// Name of the parent.
        name: Box<str>,
    }
}

complete!(InferencePoolSpec, InferencePoolStatus);
