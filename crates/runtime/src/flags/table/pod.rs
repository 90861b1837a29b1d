//! Where the process runs, mostly set by the pod template.

super::flags! {
    Pod

    /// Address of the pod.
    INSTANCE_IP: Text = "";

    /// Knative revision, set when Knative runs the process.
    K_REVISION: Text = "";

    /// Node of the pod.
    NODE_NAME: Text = "";

    /// Platform, such as `openshift` or `gcp`.
    PLATFORM: Text = "";

    /// Name of the pod.
    POD_NAME: Text = "";

    /// Namespace of the pod.
    POD_NAMESPACE: Text = "";

    /// Revision of the control plane.
    REVISION: Text = "";

    /// Service account of the pod.
    SERVICE_ACCOUNT: Text = "";
}
