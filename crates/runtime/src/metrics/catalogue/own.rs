//! What Istio has no name for.

super::metrics! {
    OWN

    /// Seconds from the time a change was seen until the last client it concerns has acknowledged it.
    Histogram CANOPUS_CHANGE_TO_ACK_SECONDS = "canopus_change_to_ack_seconds"[]
        in [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

    /// Batches of changes that were applied, by what changed.
    Counter CANOPUS_PUSHES_TOTAL = "canopus_pushes_total"["cause"];

    /// Clients that batches of changes concerned, by what changed; those that had everything already are among them.
    Counter CANOPUS_PUSH_RECIPIENTS_TOTAL = "canopus_push_recipients_total"["cause"];

    /// Bytes of resources sent because something changed, by type.
    Counter CANOPUS_PUSH_BYTES_TOTAL = "canopus_push_bytes_total"["type"];

    /// Clients that have not acknowledged a change that concerns them.
    Gauge CANOPUS_CLIENTS_BEHIND = "canopus_clients_behind"[];

    /// Objects whose last change some client does not have yet, or has refused.
    Gauge CANOPUS_OBJECTS_NOT_CONVERGED = "canopus_objects_not_converged"[];

    /// Objects that are held at an earlier value because proxies rejected what follows from them.
    Gauge CANOPUS_QUARANTINED_OBJECTS = "canopus_quarantined_objects"[];

    /// Times an object was found to be what proxies rejected, and held.
    Counter CANOPUS_QUARANTINE_TOTAL = "canopus_quarantine_total"[];

    /// Writes of controllers to the cluster, by what became of them.
    Counter CANOPUS_CONTROLLER_WRITES_TOTAL = "canopus_controller_writes_total"["controller", "result"];

    /// When certificates that the mesh relies on expire, in seconds since 1970; of workloads, the first of each namespace.
    Gauge CANOPUS_CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS = "canopus_certificate_expiry_timestamp_seconds"["holder", "role"];

    /// How far the rotation of a self-signed root is: 1 for the phase it is in, 0 for the others.
    Gauge CANOPUS_ROOT_ROTATION_PHASE = "canopus_root_rotation_phase"["phase"];

    /// Steps that rotations of the self-signed root have taken since it was made, by whichever replica.
    Counter CANOPUS_ROOT_ROTATION_STEPS_TOTAL = "canopus_root_rotation_steps_total"[];

    /// Panics of long-lived tasks and their parts, which were begun again or ended the process.
    Counter CANOPUS_TASK_PANICS_TOTAL = "canopus_task_panics_total"["task"];

    /// Objects the mesh is made from.
    Gauge CANOPUS_ENGINE_INPUTS = "canopus_engine_inputs"[];

    /// Results that are kept up to date or in case they are asked for again.
    Gauge CANOPUS_ENGINE_RESULTS = "canopus_engine_results"[];

    /// Times a result was computed.
    Counter CANOPUS_ENGINE_EVALUATIONS_TOTAL = "canopus_engine_evaluations_total"[];
}
